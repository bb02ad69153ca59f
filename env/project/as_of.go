package project

import (
	"strings"
	"time"
)

// The beginnings of the commands that install what a package without a lock file needs, in whatever version is the
// latest that its manifest allows.
const (
	npmUnlocked = "npm install --no-package-lock"
	pipBegins   = "python3 -m venv .venv && "
	pipUpgrade  = ".venv/bin/pip install -q -U pip && "
)

// pytestRuns ends a command of pip: if this Python is too new for the project's pytest, it gets the latest one.
const pytestRuns = ` && mkdir -p /tmp/pytest && echo 'def test(): assert 1 == 1' >/tmp/pytest/test_1.py && ` +
	`{ .venv/bin/python -m pytest -q -c /dev/null --rootdir /tmp/pytest /tmp/pytest || ` +
	`env -u PIP_UPLOADED_PRIOR_TO .venv/bin/pip install -U pytest; }`

// AsOf returns the commands of [Install] that install nothing that was published after a time. ok is false if their
// tools do not offer that, or install what a lock file pins anyway.
func AsOf(commands []string, at time.Time) (dated []string, ok bool) {
	date := at.UTC().Format(time.RFC3339)
	for _, line := range commands {
		rest, pip := strings.CutPrefix(line, pipBegins)
		switch {
		case strings.HasPrefix(line, npmUnlocked):
			line, ok = "export npm_config_before="+date+" && "+line, true
		case pip:
			rest = strings.TrimPrefix(rest, pipUpgrade)
			line, ok = pipBegins+pipUpgrade+"export PIP_UPLOADED_PRIOR_TO="+date+" && { "+rest+"; }"+pytestRuns, true
		}
		dated = append(dated, line)
	}
	return dated, ok
}
