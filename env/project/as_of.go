package project

import (
	"strings"
	"time"
)

// The commands with which npm and pip install the latest versions that a manifest allows, where no lock file pins them.
const (
	NpmInstall = "npm install --no-package-lock"
	PipInstall = ".venv/bin/pip install "
)

const (
	// pipBegins creates the environment into which pip installs, and newestPip updates pip there.
	pipBegins = "python3 -m venv .venv && "
	newestPip = ".venv/bin/python -m pip install -q -U pip && "
)

// olderPackages ends a command of pip that has installed the latest packages: each of them becomes the latest version
// at a time, if there is one that this Python can install, and what these need is added. What the project is built with
// stays.
const olderPackages = `older=".venv/bin/python -m pip install -q --uploaded-prior-to TIME" && ` +
	`all=$(.venv/bin/python -m pip list --format=freeze --exclude-editable | sed 's/[ =@].*//' | ` +
	`grep -vxE 'pip|setuptools|wheel') && { $older --no-deps --force-reinstall $all || ` +
	`for one in $all; do $older --no-deps --force-reinstall "$one" || :; done; } && ` +
	`{ $older $(.venv/bin/python -m pip check | sed -n 's/.* requires \(.*\), which is not installed\.$/\1/p') || :; }`

// pytestRuns ends a command of pip: if this Python is too new for the project's pytest, it gets the next newer ones.
const pytestRuns = ` && mkdir -p /tmp/pytest && echo 'def test(): assert 1 == 1' >/tmp/pytest/test_1.py && ` +
	`for one in py 'pytest<7' 'pytest<8' pytest; do ` +
	`.venv/bin/python -m pytest -q -c /dev/null --rootdir /tmp/pytest /tmp/pytest && break; ` +
	`.venv/bin/python -m pip install -q -U "$one"; done`

// AsOf returns the commands of [Install] that install nothing that was published after a time, as far as that works. ok
// is false if their tools do not offer that, or install what a lock file pins anyway.
func AsOf(commands []string, at time.Time) (dated []string, ok bool) {
	date := at.UTC().Format(time.RFC3339)
	for _, line := range commands {
		switch {
		case strings.HasPrefix(line, NpmInstall):
			// Remedies for a command that asks for the latest versions, which other set-ups learn from, are none for this.
			line, ok = "npm install --before="+date+strings.TrimPrefix(line, "npm install"), true
		case strings.HasPrefix(line, pipBegins):
			line = "{ " + line + "; } && " + newestPip + strings.Replace(olderPackages, "TIME", date, 1) + pytestRuns
			ok = true
		}
		dated = append(dated, line)
	}
	return dated, ok
}
