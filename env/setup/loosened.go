package setup

import "deepswe/env/project"

const (
	// unbuilt is what pip prints before the name of a package that it cannot build, or of which it finds no version.
	unbuilt = `(Failed to build|Failed building wheel for|No matching distribution found for|Could not build wheels for) `
	// pinFails matches what pip prints about such a package; without its name, where the package's own set-up fails.
	pinFails = unbuilt + `|subprocess-exited-with-error`
)

// loosenedInstall takes the place of [project.PipInstall]. It removes packages that pip cannot install from the files
// with requirements, one after the other, and finally installs them in whatever version is built for this Python. Old
// pins often name one that current versions of Python cannot build.
const loosenedInstall = `loosened() { left=; done=; for i in 1 2 3 4 5 6 7 8; do ` +
	`if out=$(` + project.PipInstall + `"$@" 2>&1); then done=1; break; fi; ` +
	`one=$(echo "$out" | sed -nE "s/^.*` + unbuilt + `'?([A-Za-z0-9][A-Za-z0-9._-]*).*/\2/p" | tail -n 1); ` +
	`one=${one:-$(echo "$out" | sed -nE 's/^ *Collecting ([A-Za-z0-9][A-Za-z0-9._-]*).*/\1/p' | tail -n 1)}; ` +
	`files=$(grep -liE "^$one([^A-Za-z0-9._-]|$)" *.txt */*.txt 2>/dev/null || :); ` +
	`if [ -z "$one" ] || [ -z "$files" ]; then break; fi; ` +
	`sed -i -E "/^$one([^A-Za-z0-9._-]|$)/Id" $files; left="$left $one"; done; echo "$out"; ` +
	`for one in $left; do ` + project.PipInstall + `--only-binary :all: "$one" || echo "left out: $one"; done; ` +
	`[ -n "$done" ]; } && loosened `
