package project

import (
	"slices"
	"testing"
	"time"
)

func TestAsOf(t *testing.T) {
	t.Parallel()
	at := time.Date(2021, 3, 4, 6, 6, 7, 0, time.FixedZone("", 3600))
	const python = "python3 -m venv .venv && .venv/bin/pip install -q -U pip && export PIP_UPLOADED_PRIOR_TO=2021-03-04T05:06:07Z && { "
	for line, want := range map[string]string{
		"npm install --no-package-lock": "export npm_config_before=2021-03-04T05:06:07Z && npm install --no-package-lock",
		"python3 -m venv .venv && .venv/bin/pip install -r requirements.txt": python +
			".venv/bin/pip install -r requirements.txt; }" + pytestRuns,
		"python3 -m venv .venv && .venv/bin/pip install -q -U pip && .venv/bin/pip install -e '.[a]' || .venv/bin/pip install -e '.'": python +
			".venv/bin/pip install -e '.[a]' || .venv/bin/pip install -e '.'; }" + pytestRuns,
		"npm ci":          "",
		"go mod download": "",
	} {
		dated, ok := AsOf([]string{line}, at)
		if ok != (want != "") || ok && !slices.Equal(dated, []string{want}) {
			t.Errorf("%s: %q, %t, want %q", line, dated, ok, want)
		}
	}
}
