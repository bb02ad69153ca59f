package project

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAsOf(t *testing.T) {
	t.Parallel()
	at := time.Date(2021, 3, 4, 6, 6, 7, 0, time.FixedZone("", 3600))
	older := newestPip + strings.Replace(olderPackages, "TIME", "2021-03-04T05:06:07Z", 1) + pytestRuns
	const requirements = "python3 -m venv .venv && .venv/bin/pip install -r a.txt || .venv/bin/pip install -r b.txt"
	for line, want := range map[string]string{
		"npm install --no-package-lock": "npm install --before=2021-03-04T05:06:07Z --no-package-lock",
		requirements:                    "{ " + requirements + "; } && " + older,
		"npm ci":                        "",
		"go mod download":               "",
	} {
		dated, ok := AsOf([]string{line}, at)
		if ok != (want != "") || ok && !slices.Equal(dated, []string{want}) {
			t.Errorf("%s: %q, %t, want %q", line, dated, ok, want)
		}
	}
}
