package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"deepswe/env"
)

// Without bubblewrap nothing runs directly on the host, unless it is asked for by name or is the bundled demo.
func TestHostIsChosenByName(t *testing.T) {
	missing := errors.New("bubblewrap is not installed")
	for _, c := range []struct {
		name   string
		choice SandboxChoice
		opens  bool
	}{
		{"auto", SandboxChoice{}, false},
		{"by name", SandboxChoice{Env: EnvHost}, true},
		{"the demo", SandboxChoice{Demo: true}, true},
		{"the demo in bubblewrap by name", SandboxChoice{Env: EnvBwrap, Demo: true}, false},
	} {
		opened := false
		w := World{Log: slog.New(slog.DiscardHandler), Sandboxes: []SandboxKind{
			{Name: EnvBwrap, Open: func(context.Context, *slog.Logger, SandboxChoice) (env.Provider, error) {
				return nil, missing
			}},
			{Name: EnvHost, Open: func(context.Context, *slog.Logger, SandboxChoice) (env.Provider, error) {
				opened = true
				return nil, missing // it is enough that somebody tried
			}},
		}}
		if _, err := w.Sandbox(t.Context(), c.choice); !errors.Is(err, missing) || opened != c.opens {
			t.Errorf("%s: host opened: %v, %v", c.name, opened, err)
		}
	}
}

// Places in a file are used where sandboxes can be elsewhere: daemons for Docker, contexts for Kubernetes.
func TestPlacesOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "places")
	if err := os.WriteFile(file, []byte("# ours\none\n two \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		choice SandboxChoice
		places Places
		err    string
	}{
		{"Docker", SandboxChoice{Env: EnvDocker, Image: "i"}, Places{Hosts: []string{"one", "two"}}, "asked"},
		{"Kubernetes", SandboxChoice{Env: EnvKubernetes, Image: "i"}, Places{Contexts: []string{"one", "two"}}, "asked"},
		{"here", SandboxChoice{Env: EnvBwrap}, Places{}, "omit places_file"},
		{"both", SandboxChoice{Env: EnvDocker, Image: "i", Places: Places{Hosts: []string{"three"}}}, Places{}, "omit one"},
	} {
		var got Places
		open := func(_ context.Context, _ *slog.Logger, c SandboxChoice) (env.Provider, error) {
			got = c.Places
			return nil, errors.New("asked")
		}
		w := World{Log: slog.New(slog.DiscardHandler)}
		for _, k := range sandboxKinds() {
			k.Open = open
			w.Sandboxes = append(w.Sandboxes, k)
		}
		c.choice.File = file
		_, err := w.Sandbox(t.Context(), c.choice)
		if err == nil || !strings.Contains(err.Error(), c.err) || !reflect.DeepEqual(got, c.places) {
			t.Errorf("%s: %v, %+v", c.name, err, got)
		}
	}
}
