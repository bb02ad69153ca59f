package docker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env"
)

// built returns the name of a folder's image, which is removed at the end of the test.
func built(t *testing.T, p *Provider, folder string) string {
	t.Helper()
	ref, err := p.built(folder, env.Recipe{})
	if err != nil {
		t.Fatal(err)
	}
	unpull(t, p, ref)
	return ref
}

// TestBuild builds a folder once for many starts, with features that only BuildKit has.
func TestBuild(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var reports []env.Progress
	p := provider(t, Options{Progress: func(r env.Progress) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, r)
	}})
	needImage(t, p, busybox)
	dir := write(t, map[string]string{
		"Dockerfile": "FROM " + busybox + " AS first\nRUN cat /proc/sys/kernel/random/uuid > /unique\n" +
			"FROM first\nWORKDIR /work\nCOPY . .\nRUN --mount=type=tmpfs,target=/scratch \\\n  FROM=somewhere; chmod 751 run.sh && echo $FROM > /word\n",
		".dockerignore": "secret\n*.log\n!kept.log\n",
		"run.sh":        "echo hello\n", "secret/key": "x", "a.log": "x", "kept.log": "x",
	})
	if err := os.Symlink("run.sh", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	built(t, p, dir)
	unique := map[string]bool{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := p.Start(t.Context(), env.Spec{Dockerfile: dir, Dir: "/work"})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close(t.Context())
			if out, want := must(t, s, "cat /word; ./link; ls -A"),
				"somewhere\nhello\n.dockerignore\nDockerfile\nkept.log\nlink\nrun.sh\n"; out != want {
				t.Errorf("printed %q, want %q", out, want)
			}
			mu.Lock()
			unique[must(t, s, "cat /unique")] = true
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(unique) != 1 {
		t.Errorf("it was built %d times, want once", len(unique))
	}
	want := []env.Progress{
		{Action: env.Building, Host: p.daemons[0].host, Image: dir},
		{Action: env.Building, Host: p.daemons[0].host, Image: dir, Done: true},
	}
	if diff := cmp.Diff(want, reports); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

// An image is named after the content of its folder, not after the folder's place or times.
func TestBuildNamesTheContent(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	name := func(files map[string]string) string {
		ref, err := p.built(write(t, files), env.Recipe{})
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	first := name(map[string]string{"Dockerfile": "FROM a\n", "b": "1"})
	if again := name(map[string]string{"Dockerfile": "FROM a\n", "b": "1"}); again != first {
		t.Errorf("the same content is %s and %s", first, again)
	}
	for what, other := range map[string]map[string]string{
		"a Dockerfile": {"Dockerfile": "FROM b\n", "b": "1"},
		"a file":       {"Dockerfile": "FROM a\n", "b": "2"},
		"a name":       {"Dockerfile": "FROM a\n", "c": "1"},
	} {
		if name(other) == first {
			t.Errorf("%s that differs gives the same image", what)
		}
	}
	if _, err := p.Start(t.Context(), env.Spec{Dockerfile: t.TempDir()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder without a Dockerfile: %v", err)
	}
}

func TestBuildFails(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	needImage(t, p, busybox)
	for name, c := range map[string]struct {
		dockerfile string
		says       []string
		machinery  bool
	}{
		"a command": {"FROM " + busybox + "\nRUN echo the reason is this; exit 7\n",
			[]string{"exit code: 7", "the reason is this"}, false},
		"no such word":     {"FROM " + busybox + "\nRUMBLE\n", []string{"RUMBLE"}, false},
		"no such image":    {"FROM localhost:1/none\n", []string{"localhost:1/none"}, true},
		"a file not there": {"FROM " + busybox + "\nCOPY none /\n", []string{"none"}, false},
		"an empty one":     {"\n", []string{"empty"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ref := built(t, p, write(t, map[string]string{"Dockerfile": c.dockerfile}))
			s, err := p.Start(t.Context(), env.Spec{Image: ref})
			if err == nil {
				t.Fatal(errors.Join(errors.New("it was started"), s.Close(t.Context())))
			}
			for _, word := range c.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the error lacks %q: %v", word, err)
				}
			}
			if errors.Is(err, env.ErrInfrastructure) != c.machinery {
				t.Errorf("the machinery's failure: %v, want %v: %v", !c.machinery, c.machinery, err)
			}
		})
	}
}

func TestBasesOf(t *testing.T) {
	t.Parallel()
	const dockerfile = `# syntax=docker/dockerfile:1
ARG TAG=3
FROM --platform=linux/amd64 golang:1.26 AS Build
from python:${TAG} as later
FROM build
FROM scratch
COPY --from=build /a /a
FROM golang:1.26
`
	want := []string{"docker/dockerfile:1", "golang:1.26"}
	if diff := cmp.Diff(want, basesOf(dockerfile)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
