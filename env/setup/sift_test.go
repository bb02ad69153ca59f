//go:build linux

package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/testkit"
)

// TestSift: new files are kept, and those that existed are seen as they were.
func TestSift(t *testing.T) {
	layer, source := t.TempDir(), t.TempDir()
	write := func(root string, files ...string) {
		for i := 0; i < len(files); i += 2 {
			testkit.WriteFile(t, filepath.Join(root, files[i]), files[i+1])
		}
	}
	write(source, "package.json", "{}", "package-lock.json", "1", "src/a", "a", "src/b", "b", "node_modules/old/x", "1",
		"tool", "1")
	write(layer, "package-lock.json", "2", "src/a", "a", "src/generated", "g", "node_modules/old/x", "2",
		"node_modules/new/x", "1", "packages/a/node_modules/x", "1", ".git/config", "x", "tool/x", "now a directory")
	added, restored, err := Sift(layer, source, []string{"node_modules"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"packages", "src/generated"}; !slices.Equal(added, want) {
		t.Errorf("added %q, want %q", added, want)
	}
	if want := []string{"package-lock.json", "tool"}; !slices.Equal(restored, want) {
		t.Errorf("restored %q, want %q", restored, want)
	}
	for name, want := range map[string]bool{
		"package-lock.json": false, ".git": false, "src/a": false, "tool": false, "src/generated": true,
		"node_modules/old/x": true, "node_modules/new/x": true, "packages/a/node_modules/x": true,
	} {
		if _, err := os.Lstat(filepath.Join(layer, name)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
}

func TestKey(t *testing.T) {
	root := t.TempDir()
	testkit.WriteFile(t, filepath.Join(root, "packages/a/package-lock.json"), "1")
	key := func(commands ...string) string {
		t.Helper()
		k, err := Key(root, "bwrap", commands, false)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := key("npm ci")
	testkit.WriteFile(t, filepath.Join(root, "src/a.js"), "code")
	testkit.WriteFile(t, filepath.Join(root, "node_modules/x/package.json"), "{}")
	if key("npm ci") != first {
		t.Error("the key depends on the code")
	}
	if key("npm install") == first {
		t.Error("the key does not depend on the command")
	}
	for _, name := range []string{"packages/a/package-lock.json", "requirements/dev.txt", "dev.requirements.txt"} {
		testkit.WriteFile(t, filepath.Join(root, name), "2")
		if key("npm ci") == first {
			t.Errorf("the key does not depend on %s", name)
		}
		first = key("npm ci")
	}
}

// TestStore: an installation is found again, and a failed one leaves nothing.
func TestStore(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "setups")}
	install := func(dir string) (env.Installed, error) {
		testkit.WriteFile(t, filepath.Join(dir, "repo", "node_modules", "x"), "1")
		return env.Installed{Dir: dir, Added: []string{"node_modules"}}, nil
	}
	first, reused, err := s.Get(t.Context(), "k", install)
	if err != nil || reused {
		t.Fatal(reused, err)
	}
	again, reused, err := s.Get(t.Context(), "k", func(string) (env.Installed, error) {
		t.Error("it is installed again")
		return env.Installed{}, nil
	})
	if err != nil || !reused || again.Dir != first.Dir || !slices.Equal(again.Added, first.Added) {
		t.Errorf("%+v, %v, %v", again, reused, err)
	}
	failure := errors.New("no network")
	if _, _, err := s.Get(t.Context(), "other", func(dir string) (env.Installed, error) {
		testkit.WriteFile(t, filepath.Join(dir, "half"), "")
		return env.Installed{}, failure
	}); !errors.Is(err, failure) {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.Dir, "kept", "other", "*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	if got := s.Agreement("/r"); got != nil {
		t.Errorf("agreed to %q", got)
	}
	for _, commands := range [][]string{{"npm ci", "npm run build"}, nil} {
		if err := s.Agree("/r", commands); err != nil {
			t.Fatal(err)
		}
		if got := s.Agreement("/r"); !slices.Equal(got, commands) {
			t.Errorf("agreed to %q, want %q", got, commands)
		}
	}
}

// TestStoreIsBounded: entries that were not used for long are removed, and those in use are not.
func TestStoreIsBounded(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	if left, err := s.Reap(env.ReapOptions{}); len(left) > 0 || err != nil {
		t.Errorf("an empty store: %v, %v", left, err)
	}
	day := 24 * time.Hour
	keep := func(key string, unused time.Duration) {
		record, at := filepath.Join(s.entry(key), recordFile), time.Now().Add(-unused)
		testkit.WriteFile(t, record, "{}")
		if err := os.Chtimes(record, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for i := range mostKept - 1 {
		keep(fmt.Sprint("used", i), time.Duration(i)*time.Hour)
	}
	keep("weekly", 7*day)
	keep("too many", 8*day)
	keep("too old", 31*day)
	testkit.WriteFile(t, filepath.Join(s.entry("killed"), filesDir, "half"), "")
	testkit.WriteFile(t, filepath.Join(s.entry("live"), filesDir, "half"), "")
	lock, err := disk.TryLock(s.entry("live") + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	reap := func(o env.ReapOptions, want ...string) {
		t.Helper()
		left, err := s.Reap(o)
		var got []string
		for _, l := range left {
			got = append(got, filepath.Base(l.ID))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || err != nil {
			t.Errorf("%+v removed %q, %v, want %q", o, got, err, want)
		}
	}
	reap(env.ReapOptions{DryRun: true}, "killed", "too many", "too old")
	reap(env.ReapOptions{}, "killed", "too many", "too old")
	reap(env.ReapOptions{})
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	reap(env.ReapOptions{}, "live")
	if left, err := s.Reap(env.ReapOptions{All: true}); len(left) != mostKept || err != nil {
		t.Errorf("all: %d, %v, want %d", len(left), err, mostKept)
	}
}

// stuck is a sandbox whose commands fail.
type stuck struct {
	Sandbox
	lines []string
}

func (s *stuck) Run(_ context.Context, c env.Command) (env.Result, error) {
	s.lines = append(s.lines, c.Line)
	if c.Line == "bad" {
		return env.Result{ExitCode: 7, Stderr: env.Output{Head: []byte("why")}}, nil
	}
	return env.Result{}, nil
}

func TestRunEndsWithTheFirstFailure(t *testing.T) {
	s := &stuck{}
	err := Run(t.Context(), s, env.Setup{Commands: []string{"good", "bad", "never"}}, true)
	failed, ok := errors.AsType[*env.SetupError](err)
	if !ok || failed.Step != 2 || !strings.Contains(err.Error(), "exit code 7") || !strings.Contains(err.Error(), "why") {
		t.Error(err)
	}
	if !slices.Equal(s.lines, []string{"good", "bad"}) {
		t.Errorf("ran %q", s.lines)
	}
}
