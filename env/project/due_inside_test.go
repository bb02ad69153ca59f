package project_test

import (
	"context"
	"os/exec"
	"testing"

	"deepswe/env"
	"deepswe/env/project"
	"deepswe/env/testkit/images"
)

// An image may already have what a project needs, so the project's own tools are asked.
func TestDueInside(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	const required = "module m\n\ngo 1.21\n\nrequire example.com/missing v1.0.0\n"
	for name, c := range map[string]struct {
		mod, source string
		due         bool
	}{
		"missing":    {required, "package m\n\nimport _ \"example.com/missing\"\n", true},
		"not needed": {required, "package m\n", false},
		"none":       {"module m\n\ngo 1.21\n", "package m\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := images.New(t, map[string]string{"go.mod": c.mod, "m.go": c.source})
			sb, err := p.Start(t.Context(), env.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := sb.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}()
			due, err := project.DueInside(t.Context(), p.Dir, sb)
			if err != nil || c.due != (len(due) == 1) || c.due && due[0].Command != "go mod download" {
				t.Errorf("%+v, %v", due, err)
			}
		})
	}
}

// A lock file of Cargo also names packages for other systems, so cargo is asked about this one.
func TestAskCargo(t *testing.T) {
	t.Parallel()
	const lock = "[[package]]\nname = \"loom\"\nversion = \"0.7.2\"\nsource = \"registry+https://crates.io\"\n"
	const cargo = "#!/bin/sh\ncase \"$*\" in metadata*--offline*\"--filter-platform mine\") exit $MISSING ;; esac\nexit 9\n"
	p := images.New(t, map[string]string{"Cargo.toml": "", "Cargo.lock": lock, "bin/cargo": cargo,
		"bin/rustc": "#!/bin/sh\necho 'host: mine'\n"})
	due := project.Due(p.Dir, project.Machine{CargoHome: t.TempDir()})
	if len(due) != 1 {
		t.Fatalf("%+v", due)
	}
	for missing, want := range map[string]int{"0": 0, "101": 1} {
		sb, err := p.Start(t.Context(), env.Spec{Prepare: []string{"chmod +x bin/*"},
			Env: []string{"MISSING=" + missing, "PATH=bin:/usr/bin:/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		if asked, err := project.Ask(t.Context(), due, sb); err != nil || len(asked) != want {
			t.Errorf("%+v, %v", asked, err)
		}
		if err := sb.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}
