//go:build linux

package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/env/repo"
	"deepswe/env/testkit"
)

// project makes a repository with dependencies that git ignores, and returns its path.
func project(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "a project, of: mine")
	script := `mkdir -p "$0/lib" "$0/node_modules/x" && cd "$0" && git init -q . && echo node_modules >.gitignore && echo .env >>.gitignore &&
echo one >lib/a && echo two >lib/b && echo dependency >node_modules/x/index && chmod 600 node_modules/x/index &&
echo KEY=1 >.env && git add -A && git -c user.name=u -c user.email=u@u commit -qm start && echo changed >lib/b && echo new >untracked && chmod 755 .`
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// state returns everything about a directory that can be seen, except access times.
func state(t *testing.T, dir string) string {
	t.Helper()
	const script = `ls -lAR --time-style=full-iso . && find . -type f -print0 | sort -z | xargs -0 sha256sum`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// checkout starts a sandbox that shows a directory, and skips the test on a machine without overlays.
func checkout(t *testing.T, p env.Provider, dir string) (env.Sandbox, *repo.Snapshot) {
	t.Helper()
	if err := p.(env.Overlayer).CanOverlay(t.Context(), dir); err != nil {
		testkit.Skip(t, "overlay", err)
	}
	s, err := repo.Take(t.Context(), dir, repo.Options{Share: true})
	if err != nil {
		t.Fatal(err)
	}
	spec := env.Spec{}
	s.Place(&spec)
	sb, err := p.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return sb, s
}

func said(t *testing.T, sb env.Sandbox, line string) string {
	t.Helper()
	r, err := sb.Run(t.Context(), env.Command{Line: line})
	if err != nil {
		t.Fatal(err)
	}
	return string(r.Stdout.Head) + string(r.Stderr.Head)
}

// A checkout is at its own path and complete, except for secrets. All of it can be changed, and nothing on disk
// changes.
func TestBwrapCheckout(t *testing.T) {
	testCheckout(t, newBwrap)
}

// TestHostCheckout: without isolation, too, a checkout is at its own path, and the files on disk do not change.
func TestHostCheckout(t *testing.T) {
	testCheckout(t, newHost)
}

func testCheckout(t *testing.T, open func(*testing.T) env.Provider) {
	dir := project(t)
	p := open(t)
	before := state(t, dir)
	sb, s := checkout(t, p, dir)
	if sb.Dir() != dir {
		t.Errorf("the repository is at %s, want %s", sb.Dir(), dir)
	}
	for line, want := range map[string]string{
		"pwd":                       dir,
		"cat lib/b untracked":       "changed\nnew",
		"cat node_modules/x/index":  "dependency",
		"test -e .env || echo none": "none",
		"git status --porcelain":    "",
		"git log --format=%s":       "State of the work tree at the start\nstart",
		"git show HEAD~1:lib/b":     "two",
		"test -O lib/a && test -O node_modules/x/index && test -O . && echo mine": "mine",
	} {
		if got := strings.TrimSpace(said(t, sb, line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	base, err := repo.Record(t.Context(), sb, s, s.Aside)
	if err != nil {
		t.Fatal(err)
	}
	const work = `echo fixed >lib/a; echo more >>node_modules/x/index; mkdir node_modules/y && echo y >node_modules/y/y
mv lib/b lib/c; rm -rf .git; echo KEY=2 >.env; cat lib/a lib/c node_modules/*/*`
	if got, want := said(t, sb, work), "fixed\nchanged\ndependency\nmore\ny\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	patch, err := base.Patch(t.Context(), sb)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(patch.Files, " "); got != "lib/a lib/b lib/c" {
		t.Errorf("the patch is of %s:\n%s", got, patch.Diff)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if after := state(t, dir); after != before {
		t.Errorf("the directory changed:\n%s\n%s", before, after)
	}
}

// TestHomeEnvironments: environments for the project that tools have made in the user's home are at their paths, can be
// written to, and do not change on disk.
func TestHomeEnvironments(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	venv := filepath.Join(home, ".cache/pypoetry/virtualenvs/mine-py3")
	testkit.WriteFile(t, filepath.Join(venv, "lib/mine.pth"), "mine\n")
	testkit.WriteFile(t, filepath.Join(home, ".local/share/pipx/venvs/poetry/tool"), "poetry\n")
	testkit.WriteFile(t, filepath.Join(home, ".local/share/keyrings/k"), "secret\n")
	t.Setenv("HOME", home)
	before := state(t, home)
	for name, open := range map[string]func(*testing.T) env.Provider{"bwrap": newBwrap, "host": newHost} {
		t.Run(name, func(t *testing.T) {
			sb, _ := checkout(t, open(t), project(t))
			line := `cd ~/.cache/pypoetry/virtualenvs/mine-py3 && cat lib/mine.pth "$0/lib/mine.pth" && echo more >>lib/mine.pth &&
cat "$0/lib/mine.pth"; cat ~/.local/share/pipx/venvs/poetry/tool; ls ~/.local/share`
			line = strings.ReplaceAll(line, "$0", venv)
			if got, want := said(t, sb, line), "mine\nmine\nmine\nmore\npoetry\npipx\n"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if got, want := said(t, sb, "env | grep -E '^(UV|YARN|COREPACK)_' | sort"),
				"COREPACK_ENABLE_NETWORK=0\nUV_OFFLINE=1\nYARN_ENABLE_NETWORK=0\n"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	if after := state(t, home); after != before {
		t.Errorf("the home changed:\n%s\n%s", before, after)
	}
}

// TestBwrapCheckoutRefuses: an overlay never covers the sandbox's own directories.
func TestBwrapCheckoutRefuses(t *testing.T) {
	p := newBwrap(t).(env.Overlayer)
	for _, dir := range []string{"/", "/usr", "/etc/x", "/tmp", "/run/deepswe/x", "/proc/1"} {
		if err := p.CanOverlay(t.Context(), dir); err == nil {
			t.Errorf("%s was accepted", dir)
		}
	}
	if err := p.CanOverlay(t.Context(), filepath.Dir(os.TempDir()+"/x")); err == nil {
		t.Error("the directory for temporary files was accepted")
	}
}

// TestHostBends: where there is only a copy, an environment that refers to the user's files refers to the copy instead.
func TestHostBends(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	source, venv := filepath.Join(root, "mine"), filepath.Join(root, "venv")
	if out, err := exec.CommandContext(t.Context(), "python3", "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Skipf("needs python3 -m venv: %v: %s", err, out)
	}
	site, err := filepath.Glob(filepath.Join(venv, "lib", "python3*", "site-packages"))
	if err != nil || len(site) != 1 {
		t.Fatalf("%q, %v", site, err)
	}
	testkit.WriteFile(t, filepath.Join(site[0], "mine.pth"), filepath.Join(source, "src")+"\n")
	testkit.WriteFile(t, filepath.Join(source, "src", "mine.py"), "where = 'mine'\n")
	t.Setenv("VIRTUAL_ENV", venv)
	t.Setenv("PATH", filepath.Join(venv, "bin")+":"+os.Getenv("PATH"))
	p := newHost(t)
	sb, err := p.Start(t.Context(), env.Spec{CopyIn: source, Source: source})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close(t.Context()) })
	const line = `echo "where = 'copy'" >src/mine.py; cd / && python3 -c 'import mine; print(mine.where)'`
	if got := said(t, sb, line); got != "copy\n" {
		t.Errorf("%q was imported", got)
	}
	t.Setenv("GOFLAGS", "-modfile="+source+"/go.alt.mod")
	if sb, err := newHost(t).Start(t.Context(), env.Spec{CopyIn: source, Source: source}); err == nil {
		sb.Close(t.Context())
		t.Error("GOFLAGS that name the user's files were accepted")
	}
}
