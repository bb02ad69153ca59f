//go:build linux

package local_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/env/repo"
	"deepswe/env/testkit"
)

func TestBwrapInstall(t *testing.T) { testInstall(t, newBwrap) }

func TestHostInstall(t *testing.T) { testInstall(t, newHost) }

// testInstall: what a set-up creates is in later sandboxes, whose users can change it. Its changes to the user's own
// files are undone, and nothing on disk changes.
func testInstall(t *testing.T, open func(*testing.T) env.Provider) {
	dir := project(t)
	home := t.TempDir()
	t.Setenv("HOME", home)
	testkit.WriteFile(t, filepath.Join(home, ".gradle", "caches", "used"), "cache\n")
	p := open(t)
	if err := p.(env.Overlayer).CanOverlay(t.Context(), dir); err != nil {
		testkit.Skip(t, "overlay", err)
	}
	before := state(t, dir)
	s, err := repo.Take(t.Context(), dir, repo.Options{Share: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var spec env.Spec
	s.Place(&spec)
	commands := []string{
		`mkdir -p deps/d ~/.m2/repository && echo dep >deps/d/index && echo jar >~/.m2/repository/a.jar`,
		`echo changed >lib/a && rm lib/b && rm -r node_modules && mkdir node_modules && echo new >node_modules/y && rm -rf .git`,
	}
	var steps []string
	done, err := p.(env.Installer).Install(t.Context(), spec, env.Setup{
		Commands: commands, Aside: s.Aside, Dir: t.TempDir(),
		Progress: func(at env.SetupProgress) { steps = append(steps, fmt.Sprint(at.Step, at.Steps)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Compact(steps); !slices.Equal(got, []string{"1 2", "2 2"}) {
		t.Errorf("steps %q", got)
	}
	if !slices.Equal(done.Added, []string{"deps"}) || !slices.Equal(done.Restored, []string{"lib/a", "lib/b"}) {
		t.Errorf("added %q, restored %q", done.Added, done.Restored)
	}
	s.Install(done)
	for range 2 { // as two different users, where sandboxes have users
		var spec env.Spec
		s.Place(&spec)
		sb, err := p.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		base, err := repo.Record(t.Context(), sb, s, s.Aside)
		if err != nil {
			t.Fatal(err)
		}
		const line = `cat lib/a lib/b deps/d/index ~/.m2/repository/a.jar ~/.gradle/caches/used; ls node_modules
git status --porcelain lib
echo more >>deps/d/index && echo more >>~/.m2/repository/a.jar && echo more >>node_modules/y`
		if got, want := said(t, sb, line), "one\nchanged\ndep\njar\ncache\ny\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		patch, err := base.Patch(t.Context(), sb)
		if err != nil || len(patch.Files) > 0 {
			t.Errorf("the patch is of %q, %v", patch.Files, err)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if after := state(t, dir); after != before {
		t.Errorf("the directory changed:\n%s\n%s", before, after)
	}
}

// TestInstallReachesNoLoopback: a set-up in bwrap reaches the network through a proxy, which does not connect to this
// machine.
func TestInstallReachesNoLoopback(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	dir := project(t)
	p := newBwrap(t)
	if err := p.(env.Overlayer).CanOverlay(t.Context(), dir); err != nil {
		testkit.Skip(t, "overlay", err)
	}
	mine := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a set-up has reached a server of this machine")
	}))
	defer mine.Close()
	_, port, _ := net.SplitHostPort(mine.Listener.Addr().String())
	s, err := repo.Take(t.Context(), dir, repo.Options{Share: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var spec env.Spec
	s.Place(&spec)
	kept := t.TempDir()
	var refused []string
	const get = `curl -s -m 20 --noproxy "" -o /dev/null -w '%{http_code} ' `
	_, err = p.(env.Installer).Install(t.Context(), spec, env.Setup{
		Dir: kept,
		Commands: []string{`{ ` + get + `http://127.0.0.1:` + port + `; ` + get + `http://localhost:` + port + `; ` +
			get + `http://169.254.169.254/; curl -s -m 20 --noproxy '*' http://127.0.0.1:` + port + ` || echo none; } >got; :`},
		Progress: func(at env.SetupProgress) {
			if at.Refused != "" {
				refused = append(refused, at.Refused)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(kept, "repo", "got"))
	if err != nil || strings.TrimSpace(string(got)) != "403 403 403 none" || len(refused) != 3 {
		t.Errorf("got %q (%v), told of %q", got, err, refused)
	}
}
