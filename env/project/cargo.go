package project

import (
	"path"
	"strings"

	"deepswe/env"
)

const (
	// cargoTarget is where Cargo compiles in sandboxes. It writes there in every run, so what a set-up has compiled is
	// kept elsewhere, and copied.
	cargoTarget = "/tmp/target"
	cargoKept   = env.Caches + "/target"
	// CargoTest is how tests of Rust are run: sources that deny warnings are compiled although newer compilers warn of
	// more.
	CargoTest = "env CARGO_BUILD_RUSTFLAGS=--cap-lints=warn cargo test --offline --no-fail-fast"
)

// KeepCargo is a command line that compiles what tests of Rust need, if it can, and keeps it in [env.Caches]. The
// repository's own packages are removed from that, because they may be later ones than a task's. If that fails, nothing
// is kept.
const KeepCargo = `({ ` + CargoTest + ` --no-run || :; } && cd ` + cargoTarget + ` && ` +
	`(cd "$OLDPWD" && cargo metadata --offline --format-version 1) | ` +
	`grep -o '{"name":"[^"]*","version":"[^"]*","id":"[^"]*path+file:[^"]*"' | cut -d'"' -f4 >own && test -s own && ` +
	`(cd "$OLDPWD" && while read -r own; do cargo clean --offline -p "$own" || exit; done) <own && ` +
	`find . -name incremental -prune -exec rm -rf {} + && cp -rp . "$OLDPWD/` + cargoKept + `") || :`

// cargoTestsOf returns the command line for some files of the folder tests of one package, or for all of its tests
// where some are in its sources; empty for others.
func (t tree) cargoTestsOf(files []string) string {
	targets, dirs, all := "", map[string]bool{}, false
	for _, name := range files {
		dir, base := path.Split(name)
		above, _, source := strings.Cut("./"+dir, "/src/")
		switch {
		case path.Ext(base) == ".rs" && source:
			dirs[path.Clean(above)], all = true, true
		case path.Ext(base) == ".rs" && path.Base(dir) == "tests":
			dirs[path.Dir(path.Clean(dir))] = true
			targets += " --test " + env.ShellQuote(strings.TrimSuffix(base, ".rs"))
		default:
			return ""
		}
	}
	if all {
		delete(dirs, ".") // the usual command runs them all
		targets = ""
	}
	for dir := range dirs {
		if len(dirs) == 1 && t.has(dir+"/Cargo.toml") {
			return "cargo test --manifest-path " + env.ShellQuote(path.Join(dir, "Cargo.toml")) + targets
		}
	}
	return ""
}
