package setup

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env/disk"
	"deepswe/env/project"
)

// leftOut is the name of the file in npm's cache that lists what could not be had.
const leftOut = "left-out"

// narrowedInstall installs what a project of npm needs without those of its development dependencies that npm cannot
// get: linters, bundlers and tools for releases need repositories and versions that are gone, and tests rarely need
// such a tool. They are found by bisection. Set-ups that share npm's cache remember there what was left out. Later ones
// try that alone, in whatever version, and the rest at once, which takes fewer runs of npm and has the same result.
var narrowedInstall = oneLine(`node -e '
const fs = require("fs"), run = require("child_process").spawnSync, at = "package.json";
const text = fs.readFileSync(at, "utf8"), manifest = JSON.parse(text), wanted = manifest.devDependencies || {};
const fits = (names, ...options) => {
	const devDependencies = Object.fromEntries(Object.entries(wanted).filter(([n]) => names.includes(n)));
	fs.writeFileSync(at, JSON.stringify({ ...manifest, devDependencies }));
	const npm = ["install", "--no-package-lock", "--prefer-offline", ...options];
	return run("npm", npm, { stdio: ["ignore", "ignore", "inherit"] }).status === 0;
};
const soon = ["--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=3000"];
const asking = ["--dry-run", "--ignore-scripts", ...soon], kept = [];
const memory = process.env.npm_config_cache + "/` + leftOut + `", full = (n) => n + "@" + wanted[n];
const known = fs.existsSync(memory) ? fs.readFileSync(memory, "utf8").split("\n") : [];
const leaveOut = (n) => {
	console.log("left out: " + n);
	if (process.env.npm_config_cache && !known.includes(full(n))) fs.appendFileSync(memory, full(n) + "\n");
};
const keep = (names) => {
	const middle = names.length / 2;
	if (names.length === 0 || fits([...kept, ...names], ...asking)) kept.push(...names);
	else if (middle < 1) leaveOut(names[0]);
	else { keep(names.slice(0, middle)); keep(names.slice(middle)); }
};
const all = Object.keys(wanted), doubtful = all.filter((n) => known.some((l) => l.startsWith(n + "@")));
for (const n of doubtful) keep([n]);
let done = doubtful.length > 0 && fits([...kept, ...all.filter((n) => !doubtful.includes(n))]);
if (!done && fits([], ...asking)) {
	kept.length = 0;
	keep(all);
	done = fits(kept) || fits(kept, "--ignore-scripts");
}
fs.writeFileSync(at, text);
process.exit(done ? 0 : 1);
'`)

// lenientScripts ends a command of npm: packages whose own scripts fail stay as they are. They download browsers, or
// compile what tests may not need.
const lenientScripts = ` --ignore-scripts && for f in $(grep -lE '"(pre|post)?install" *:' ` +
	`node_modules/*/package.json node_modules/@*/*/package.json); do ` +
	`npm rebuild "$(node -p "require('./$f').name")" || true; done`

// oneLine joins the lines of a command, because commands are shown on one line.
func oneLine(command string) string { return strings.Join(strings.Fields(command), " ") }

// Foreseen returns the command that installs at once what npm can get, where the given one would fail: where a manifest
// asks for a development dependency that another set-up with the same npm cache has left out. In doubt, it returns the
// given command. With a lock file, the version may be another one.
func Foreseen(command string, manifest []byte, cache string) string {
	var wanted struct{ DevDependencies map[string]any }
	if json.Unmarshal(manifest, &wanted) != nil {
		return command
	}
	known := readLeftOut(filepath.Join(cache, leftOut))
	for name, version := range wanted.DevDependencies {
		if slices.Contains(known, fmt.Sprint(name, "@", version)) {
			return strings.Replace(command, project.NpmInstall, narrowedInstall, 1)
		}
	}
	return command
}

// readLeftOut returns the lines of a file to which set-ups write; none if it is not there, or no such file.
func readLeftOut(path string) []string {
	f, err := disk.OpenUntrusted(path) // what runs in a set-up may have put something else there
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, largestFile))
	if err != nil {
		return nil
	}
	return strings.Split(string(data), "\n")
}
