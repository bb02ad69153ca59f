package setup

// pipInstall begins a command of pip that installs requirements.
const pipInstall = ".venv/bin/pip install "

// pinFails matches what pip prints if it cannot build a package, or there is none of the version for this Python.
const pinFails = `(?m)(Failed to build|Failed building wheel for|No matching distribution found for|` +
	`Could not build wheels for) |subprocess-exited-with-error`

// loosenedInstall takes the place of [pipInstall]. It takes packages that pip cannot install out of the files with
// requirements, one after the other, and in the end installs them in whatever version is built for this Python: old
// pins often name one that current versions of Python cannot build.
const loosenedInstall = `loosened() { left=; done=; for i in 1 2 3 4 5 6 7 8; do ` +
	`if out=$(` + pipInstall + `"$@" 2>&1); then done=1; break; fi; ` +
	`one=$(echo "$out" | sed -nE "s/^.*(Failed to build|Failed building wheel for|No matching distribution found for|` +
	`Could not build wheels for) '?([A-Za-z0-9][A-Za-z0-9._-]*).*/\2/p" | tail -n 1); ` +
	`one=${one:-$(echo "$out" | sed -nE 's/^ *Collecting ([A-Za-z0-9][A-Za-z0-9._-]*).*/\1/p' | tail -n 1)}; ` +
	`files=$(grep -liE "^$one([^A-Za-z0-9._-]|$)" *.txt */*.txt 2>/dev/null || :); ` +
	`if [ -z "$one" ] || [ -z "$files" ]; then break; fi; ` +
	`sed -i -E "/^$one([^A-Za-z0-9._-]|$)/Id" $files; left="$left $one"; done; echo "$out"; ` +
	`for one in $left; do ` + pipInstall + `--only-binary :all: "$one" || echo "left out: $one"; done; ` +
	`[ -n "$done" ]; } && loosened `
