package verify

import "testing"

// Only a script that may run the repository's code before the tests has its surroundings compared, which takes longer
// than short tests.
func TestActive(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]bool{
		"#!/bin/bash\nset -uxo pipefail\n":               false,
		"cd /testbed\nset -e\nsource /opt/venv/activate": false,
		"git status\nexport PATH=/a:$PATH\n":             false,
		"set -uxo pipefail\npip install -e .\n":          true,
		"set -e; make\n":                                 true,
		"cp -rp .deps/target /tmp && chmod a+rwX /tmp":   true,
	} {
		if got := active(script); got != want {
			t.Errorf("%q is active: %t, want %t", script, got, want)
		}
	}
}
