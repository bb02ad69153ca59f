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
	// cargoOwn lists the repository's packages.
	cargoOwn = cargoTarget + "/own"
	// CargoTest runs tests of Rust. Sources that deny warnings are compiled although newer compilers warn of more.
	CargoTest = "env CARGO_BUILD_RUSTFLAGS=--cap-lints=warn cargo test --offline --no-fail-fast"
)

// CompileCargo is a command line that compiles what tests of Rust need, if it can, and removes the repository's own
// packages from that, because they may be later ones than a task's.
const CompileCargo = `({ ` + CargoTest + ` --no-run || :; } && cargo metadata --offline --format-version 1 | ` +
	`grep -o '{"name":"[^"]*","version":"[^"]*","id":"[^"]*path+file:[^"]*"' | cut -d'"' -f4 >` + cargoOwn + ` && ` +
	`test -s ` + cargoOwn + ` && ` +
	`while read -r own; do cargo clean --offline -p "$own" || exit; done <` + cargoOwn + `)`

// KeepCargo is a command line that keeps what CompileCargo has compiled in [env.Caches]. If it fails, nothing is kept.
const KeepCargo = `(` + CompileCargo + ` && find ` + cargoTarget + ` -name incremental -prune -exec rm -rf {} + && ` +
	`cp -rp ` + cargoTarget + ` ` + cargoKept + `) || :`

// manifestPath matches the option that names a package of Cargo.
var manifestPath = env.Pattern(`--manifest-path (\S+)`)

// WithFeatures returns a command line of Cargo's tests, line, with those of the features that the package has, and with
// none if it does not compile with them: some need another toolchain.
func WithFeatures(line string, features []string) string {
	if len(features) == 0 {
		return line
	}
	manifest := "Cargo.toml"
	if m := manifestPath().FindStringSubmatch(line); m != nil {
		manifest = m[1]
	}
	return "features=$(for one in " + strings.Join(features, " ") + `; do grep -q "^$one *=" ` + manifest +
		` && echo "--features $one"; done); test -z "$features" || ` + line +
		" $features --no-run >/dev/null 2>&1 || features=; " + line + " $features"
}

// cargoTestsOf returns the command line that runs the given files of one package's tests directory, or all tests of the
// package if some of the files are sources. It is empty for other files.
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
