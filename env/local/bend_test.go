//go:build linux

package local

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"deepswe/env"
)

// Settings that name the user's own files are changed to name the copy, or are refused.
func TestBend(t *testing.T) {
	source := t.TempDir()
	for name, c := range map[string]struct {
		vars map[string]string
		file string // of go.mod
		want []string
	}{
		"nothing":           {},
		"GOWORK":            {vars: map[string]string{"GOWORK": source + "/go.work"}},
		"GOFLAGS":           {vars: map[string]string{"GOFLAGS": "-mod=mod -modfile=" + source + "/other.mod"}},
		"GOFLAGS elsewhere": {vars: map[string]string{"GOFLAGS": "-modfile=/elsewhere/other.mod"}},
		"absolute path":     {file: "module m\nreplace x => " + source + "/x\n"},
		"PYTHONPATH": {
			vars: map[string]string{"PYTHONPATH": source + "/src:/elsewhere"}, want: []string{"PYTHONPATH=/copy/src"},
		},
		"PYTHONPATH relative": {
			vars: map[string]string{"PYTHONPATH": "src::" + source}, want: []string{"PYTHONPATH=src:/copy"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(source, "go.mod"), []byte(c.file), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := (&toolchain{vars: c.vars}).bend(source, "/copy")
			refused := name == "GOWORK" || name == "GOFLAGS" || name == "absolute path"
			if errors.Is(err, env.ErrUnsupported) != refused || !refused && err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// Where the repository is at its own path, settings about it are kept, and those about other places are refused or
// dropped.
func TestSettingsInPlace(t *testing.T) {
	const root = "/home/me/project"
	for name, c := range map[string]struct {
		vars    map[string]string
		want    []string
		refused bool
	}{
		"nothing": {},
		"GOWORK": {
			vars: map[string]string{"GOWORK": root + "/go.work"}, want: []string{"GOWORK=" + root + "/go.work"},
		},
		"GOWORK off":        {vars: map[string]string{"GOWORK": "off"}, want: []string{"GOWORK=off"}},
		"GOWORK elsewhere":  {vars: map[string]string{"GOWORK": "/home/me/go.work"}, refused: true},
		"GOWORK beside":     {vars: map[string]string{"GOWORK": root + "-2/go.work"}, refused: true},
		"GOFLAGS":           {vars: map[string]string{"GOFLAGS": "-count=1 -modfile=" + root + "/x.mod"}},
		"GOFLAGS elsewhere": {vars: map[string]string{"GOFLAGS": "-count=1 -modfile=/x.mod"}, refused: true},
		"PYTHONPATH": {
			vars: map[string]string{"PYTHONPATH": root + "/src:/opt/lib:lib"}, want: []string{"PYTHONPATH=" + root + "/src:lib"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := (&toolchain{vars: c.vars}).settings(root)
			if errors.Is(err, env.ErrUnsupported) != c.refused || !c.refused && err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
