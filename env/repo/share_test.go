package repo

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env"
	"deepswe/env/testkit"
)

// overlaid returns a directory with what a sandbox sees that shows the snapshot's source.
func overlaid(t *testing.T, s *Snapshot) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "seen")
	shell(t, s.Source, "cp -a . "+dir)
	for _, name := range append(slices.Clone(s.Checkout.Hidden), ".git") {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	shell(t, s.Checkout.Git, "cp -a . "+filepath.Join(dir, ".git"))
	return dir
}

// streamed returns a directory with what a sandbox gets that copies in the snapshot's source.
func streamed(t *testing.T, s *Snapshot) string {
	t.Helper()
	var spec env.Spec
	s.Place(&spec)
	if spec.CopyIn != s.Source {
		t.Fatalf("copies in %s, want %s", spec.CopyIn, s.Source)
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "archive")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(f)
	known, err := Pack(t.Context(), tw, spec, "seen", os.Getuid(), os.Getgid())
	if err := errors.Join(err, tw.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, k := range known {
		if k.Path == ".git" || strings.HasPrefix(k.Path, ".git/") {
			t.Errorf("%s is among the files of the work tree", k.Path)
		}
	}
	shell(t, dir, "tar -xf archive")
	return filepath.Join(dir, "seen")
}

func shared(t *testing.T, dir string, o Options) *Snapshot {
	t.Helper()
	o.Share = !o.Stream && !o.Ignored
	s, err := Take(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A source that is shown in place, or streamed into a sandbox, has the same files and history as a copy, and does not
// change.
func TestShareEveryKindOfRepository(t *testing.T) {
	t.Parallel()
	for name, c := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			shell(t, parent, identify+c.script)
			const state = "find . -type f -o -type l | sort | xargs -d '\\n' sha256sum 2>/dev/null; ls -lAR --time-style=full-iso"
			before := shell(t, parent, state+"; true")
			shown := shared(t, filepath.Join(parent, c.dir), Options{})
			copied := shared(t, filepath.Join(parent, c.dir), Options{Stream: true})
			seen := overlaid(t, shown)
			own := streamed(t, copied)
			if after := shell(t, parent, state+"; true"); after != before {
				t.Errorf("the source changed:\n%s", cmp.Diff(before, after))
			}
			seenAsWanted(t, seen, shown.Aside, c.files, c.commits)
			shell(t, parent, "rm -rf *") // a copy no longer needs them
			seenAsWanted(t, own, copied.Aside, c.files, c.commits)
		})
	}
}

func seenAsWanted(t *testing.T, dir string, aside, want []string, commits string) {
	t.Helper()
	var files []string
	for name := range contents(t, dir) {
		name = strings.TrimSuffix(name, "*")
		if !slices.Contains(aside, name) && !strings.HasPrefix(name, "a@") {
			files = append(files, name)
		}
	}
	slices.Sort(files)
	want = slices.DeleteFunc(slices.Clone(want), func(name string) bool { return name == "a@" })
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got)\n%s", diff)
	}
	if got := shell(t, dir, "git log --format=%s"); got != commits {
		t.Errorf("commits are\n%swant\n%s", got, commits)
	}
	if got := shell(t, dir, "git status --porcelain && git fsck --no-dangling 2>&1 | grep -v ^notice: || true"); got != "" {
		t.Errorf("the work tree is not clean, or objects are missing:\n%s", got)
	}
}

// Ignored files are there, but not part of a patch. Possible secrets are hidden, unless they are included.
func TestShareIgnoredFiles(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{
		"a": "one\n", ".gitignore": "node_modules\n.env*\n*.log\n/data\n__pycache__\n!/kept.log\n",
		"kept.log": "tracked\n", "node_modules/x/index.js": "x\n", "node_modules/.cache/big": "x", ".env": "KEY=1\n",
		".env.example": "KEY=\n", "sub/.env.local": "KEY=2\n", "run.log": "x", "data/rows": "x", "sub/__pycache__/m.pyc": "x",
	})
	commit(t, source)
	for name, c := range map[string]struct {
		options Options
		include string
		hidden  []string
	}{
		"as it is": {hidden: []string{".env", "sub/.env.local"}},
		"included": {options: Options{Include: []string{".env"}}, hidden: []string{"sub/.env.local"}},
		"excluded": {
			options: Options{Exclude: []string{"data", "node_modules/.cache", "*.log"}},
			hidden:  []string{".env", "data", "node_modules/.cache", "run.log", "sub/.env.local"},
		},
		".worktreeinclude": {include: "# what tests need\n.env.*\n", hidden: []string{".env"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.include != "" {
				testkit.WriteFile(t, filepath.Join(source, worktreeInclude), c.include)
				defer os.Remove(filepath.Join(source, worktreeInclude))
			}
			s := shared(t, source, c.options)
			hidden := slices.Sorted(slices.Values(s.Checkout.Hidden))
			if diff := cmp.Diff(c.hidden, hidden); diff != "" {
				t.Errorf("hidden (-want +got)\n%s", diff)
			}
			var told []string
			for _, o := range s.Omitted {
				told = append(told, o.Path)
			}
			if diff := cmp.Diff(c.hidden, told); diff != "" {
				t.Errorf("told (-want +got)\n%s", diff)
			}
			for _, name := range []string{"node_modules", "sub/__pycache__"} {
				if !slices.Contains(s.Aside, name) {
					t.Errorf("%s is not set aside, but %q", name, s.Aside)
				}
			}
		})
	}
	if _, err := Take(t.Context(), source, Options{Exclude: []string{"[a"}}); err == nil {
		t.Error("a pattern without an end was accepted")
	}
}

// Installed and compiled files count as ignored, unless they are tracked or are not where tools put them.
func TestShareUntrackedDependencies(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n", "__pycache__/tracked.pyc": "x"})
	commit(t, source)
	write(t, source, map[string]string{
		".venv/pyvenv.cfg": "version = 3.12\n", "node_modules/x/index.js": "x\n", "sub/__pycache__/m.pyc": "x",
		"fixture/node_modules/x/index.js": "x\n", "sub/m.py": "x",
	})
	s := shared(t, source, Options{})
	if diff := cmp.Diff([]string{".venv", "node_modules", "sub/__pycache__"}, s.Aside); diff != "" {
		t.Errorf("set aside (-want +got)\n%s", diff)
	}
	listing, err := git{dir: source, env: []string{"GIT_DIR=" + s.git}}.line(t.Context(), nil, "ls-tree", "-r", "--name-only", "HEAD")
	want := "__pycache__/tracked.pyc\na\nfixture/node_modules/x/index.js\nsub/m.py"
	if diff := cmp.Diff(want, listing); diff != "" || err != nil {
		t.Errorf("the base: %v (-want +got)\n%s", err, diff)
	}
}

// A virtual environment and linked packages refer to directories outside the repository.
func TestShareReferences(t *testing.T) {
	parent := t.TempDir()
	source := filepath.Join(parent, "main")
	write(t, parent, map[string]string{
		"main/a": "one\n", "main/.gitignore": ".venv\nnode_modules\n",
		"python/bin/python3.12*": "", "python/bin/python3@": "python3.12", "lib/m.py": "", "linked/index.js": "",
		"main/.venv/pyvenv.cfg":                         "home = " + parent + "/python/bin\nversion = 3.12\n",
		"main/.venv/lib/python3.12/site-packages/e.pth": source + "/src\n" + parent + "/lib\nimport os\n" + parent + "/none\n",
		"main/node_modules/@scope/linked@":              "../../../linked",
	})
	commit(t, source)
	s := shared(t, source, Options{})
	want := []string{filepath.Join(parent, "lib"), filepath.Join(parent, "linked"), filepath.Join(parent, "python")}
	if diff := cmp.Diff(want, s.Checkout.Shown); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A symbolic link on the way to the repository also exists in the sandbox.
func TestShareThroughALink(t *testing.T) {
	parent := t.TempDir()
	write(t, parent, map[string]string{"real/sub/a": "one\n", "link@": "real"})
	commit(t, filepath.Join(parent, "real"))
	s := shared(t, filepath.Join(parent, "link", "sub"), Options{})
	if s.Source != filepath.Join(parent, "real") || !slices.Equal(s.Checkout.Links, []string{filepath.Join(parent, "link")}) {
		t.Errorf("source %s, links %q", s.Source, s.Checkout.Links)
	}
}

// What the user changes while the agent works does not belong to the agent's patch.
func TestShareSourceThatChanges(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n", "b": "one\n", "c": "one\n", "gone": "x\n"})
	commit(t, source)
	s := shared(t, source, Options{})
	sandbox := dirTree{overlaid(t, s)}
	base, err := Record(t.Context(), sandbox, s, s.Aside)
	if err != nil {
		t.Fatal(err)
	}
	write(t, sandbox.dir, map[string]string{"a": "fixed\n", "c": "fixed\n"})
	for _, dir := range []string{source, sandbox.dir} { // an overlay shows such changes at once
		write(t, dir, map[string]string{"b": "the user's\n", "new": "the user's\n"})
		if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
			t.Fatal(err)
		}
	}
	write(t, source, map[string]string{"c": "the user's\n"})
	p, err := base.Patch(t.Context(), sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "c"}, p.Files); diff != "" {
		t.Errorf("files (-want +got)\n%s\n%s", diff, p.Diff)
	}
	if !strings.Contains(string(p.Diff), "-one\n+fixed\n") || strings.Contains(string(p.Diff), "the user's") {
		t.Errorf("the patch is\n%s", p.Diff)
	}
	var told []string
	for _, o := range p.Omitted {
		told = append(told, o.Path)
	}
	if diff := cmp.Diff([]string{"b", "gone", "new"}, told); diff != "" {
		t.Errorf("told (-want +got)\n%s", diff)
	}
}

// A copy also has ignored files, within the budget, but its repository does not track them.
func TestCopyIgnoredFiles(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{
		"a": "one\n", ".gitignore": "node_modules\n.env\n/data\n", "node_modules/x/index.js": "x\n",
		"node_modules/.bin/x@": "../x/index.js", ".env": "KEY=1\n", "data/rows": "x",
	})
	commit(t, source)
	if err := os.Truncate(filepath.Join(source, "data", "rows"), copyBudget+1); err != nil {
		t.Fatal(err)
	}
	s, err := Take(t.Context(), source, Options{Ignored: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	want := map[string]string{
		"a": "one\n", ".gitignore": "node_modules\n.env\n/data\n", "node_modules/x/index.js": "x\n",
		"node_modules/.bin/x@": "../x/index.js",
	}
	if diff := cmp.Diff(want, contents(t, s.Dir)); diff != "" {
		t.Errorf("files (-want +got)\n%s", diff)
	}
	if got := shell(t, s.Dir, "git status --porcelain; git ls-files"); got != ".gitignore\na\n" {
		t.Errorf("git says %q", got)
	}
	if len(s.Omitted) != 2 || s.Omitted[0].Path != ".env" || !strings.Contains(s.Omitted[1].Reason, "1024 MiB") {
		t.Errorf("left out are %+v", s.Omitted)
	}
	notes := strings.Join(s.Notes(), "\n")
	if !strings.Contains(notes, `run: "node_modules".`) || !strings.Contains(notes, `here: ".env", "data".`) {
		t.Errorf("the notes are\n%s", notes)
	}
}

// A virtual environment that was copied to another machine uses that machine's Python.
func TestMendEnvironment(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"v e/pyvenv.cfg": "home = /none/bin\nversion = 3.99.1\n", "v e/bin/python@": "/none/bin/python3.99",
		"bin/python3.99*": "#!/bin/sh\necho here\n",
	})
	got := shell(t, dir, `export PATH="$PWD/bin:$PATH"; `+mendEnvironment("v e")+"\n'v e/bin/python'; sed -n 1p 'v e/pyvenv.cfg'")
	if want := "here\nhome = " + dir + "/bin\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// Without such a Python, the environment's python prints an explanation.
	write(t, dir, map[string]string{"other/pyvenv.cfg": "version = 3.98.1\n", "other/bin/python@": "/none/bin/python3.98"})
	got = shell(t, dir, mendEnvironment("other")+"\nother/bin/python -m pytest 2>&1 || echo $?")
	if want := "other cannot be used here: it needs Python 3.98, which is not in this image\n127\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
