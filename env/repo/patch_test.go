package repo

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env"
)

func TestPatchReproducesTheChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after map[string]string
	}{
		"an edit":                {map[string]string{"a.go": "one\ntwo\n"}, map[string]string{"a.go": "one\n2\n"}},
		"a new file in a folder": {map[string]string{"a": "x"}, map[string]string{"a": "x", "b/c/d.txt": "new\n"}},
		"a removed file":         {map[string]string{"a": "x\n", "b": "y\n"}, map[string]string{"a": "x\n"}},
		"CRLF and tabs":          {map[string]string{"a": "x\r\n\ty\r\n"}, map[string]string{"a": "x\r\n\tz\r\n"}},
		"CRLF under text=auto": {
			map[string]string{".gitattributes": "* text=auto\n", "a": "x\r\ny\r\n"},
			map[string]string{".gitattributes": "* text=auto\n", "a": "x\r\nz\r\n"},
		},
		"no final newline":        {map[string]string{"a": "x"}, map[string]string{"a": "y"}},
		"a binary file":           {map[string]string{"a": "\x00\x01\x02"}, map[string]string{"a": "\x00\x01\x03\xff"}},
		"an empty file":           {map[string]string{"a": "x\n"}, map[string]string{"a": "", "b": ""}},
		"the executable bit":      {map[string]string{"run.sh": "#!/bin/sh\n"}, map[string]string{"run.sh*": "#!/bin/sh\n"}},
		"a file becomes a link":   {map[string]string{"a": "x\n", "b": "y\n"}, map[string]string{"a": "x\n", "b@": "a"}},
		"a folder becomes a file": {map[string]string{"a/b": "x\n"}, map[string]string{"a": "y\n"}},
		"odd names": {
			map[string]string{"a b": "x\n", `q"uo\te`: "x\n"},
			map[string]string{"a b": "y\n", `q"uo\te`: "y\n", "new\nline\ttab": "z\n", "ümläut": "z\n", "not\xffutf8": "z\n",
				"-rf": "z\n", " lead": "z\n"},
		},
		"a .gitattributes that the agent wrote": {
			map[string]string{"a": "x\n"},
			map[string]string{"a": "y\n", ".gitattributes": "* -diff filter=evil diff=evil\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, base, work := edited(t, c.before, c.after)
			p, err := base.Patch(t.Context(), work)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Omitted) > 0 {
				t.Errorf("omitted: %v", p.Omitted)
			}
			if err := Apply(t.Context(), source, p.Diff); err != nil {
				t.Fatalf("%v\n%s", err, p.Diff)
			}
			if diff := cmp.Diff(c.after, contents(t, source)); diff != "" {
				t.Errorf("the patch does not give the agent's tree (-want +got):\n%s\n%s", diff, p.Diff)
			}
		})
	}
}

// edited starts an agent on a repository with the files before, and changes them to those after.
func edited(t *testing.T, before, after map[string]string) (source string, base *Base, work dirTree) {
	t.Helper()
	source = t.TempDir()
	write(t, source, before)
	commit(t, source)
	_, base, work = start(t, source)
	wipe(t, work.dir)
	write(t, work.dir, after)
	return source, base, work
}

// wipe removes everything but the .git directory.
func wipe(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".git" {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestPatchLeavesOutWhatTheRepositoryIgnores(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{".gitignore": "*.log\nbuild/\n", "a": "x\n", "kept.log": "tracked\n"})
	g := git{dir: source, env: identity}
	commit(t, source)
	for _, args := range [][]string{{"add", "-f", "kept.log"}, {"commit", "-q", "-m", "more"}} {
		if _, err := g.run(t.Context(), nil, args...); err != nil {
			t.Fatal(err)
		}
	}
	_, base, work := start(t, source)
	write(t, work.dir, map[string]string{"new.log": "x", "build/out": "x", "kept.log": "changed\n", "b": "new\n"})
	p, err := base.Patch(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b", "kept.log"}, p.Files); diff != "" {
		t.Error(diff)
	}
	if p.Ignored != 2 {
		t.Errorf("ignored %d files, want 2", p.Ignored)
	}
}

func TestPatchLeavesOutWhatTheUserIgnores(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	write(t, os.Getenv("XDG_CONFIG_HOME"), map[string]string{"git/ignore": ".idea/\n"})
	source := t.TempDir()
	write(t, source, map[string]string{"a.py": "x\n", "tracked/__pycache__/a.pyc": "0"})
	commit(t, source)
	write(t, source, map[string]string{".git/info/exclude": "notes"})
	_, base, work := start(t, source)
	write(t, work.dir, map[string]string{
		"__pycache__/a.cpython-311.pyc": "1", "old.pyc": "1", ".idea/x": "1", "notes": "1", "b.py": "new\n",
		"tracked/__pycache__/a.pyc": "1",
	})
	p, err := base.Patch(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b.py", "tracked/__pycache__/a.pyc"}, p.Files); diff != "" {
		t.Error(diff)
	}
	if p.Ignored != 4 {
		t.Errorf("ignored %d files, want 4", p.Ignored)
	}
}

func TestPatchSurvivesWhatAnAgentDoesToGit(t *testing.T) {
	for name, hostile := range map[string]string{
		"commits":         "git -c user.name=x -c user.email=x@x commit -qam done",
		"moves HEAD":      "git -c user.name=x -c user.email=x@x commit -qam done && git update-ref HEAD HEAD~1 && git reset -q",
		"removes .git":    "rm -rf .git",
		"breaks .git":     "echo nonsense > .git/index; echo nonsense > .git/HEAD",
		"plants a hook":   "mkdir -p .git/hooks; printf '#!/bin/sh\ntouch ../pwned\n' > .git/hooks/post-index-change; chmod +x .git/hooks/*",
		"plants a filter": "git config filter.x.clean 'touch ../pwned'; git config core.fsmonitor 'touch ../pwned'; git config diff.external 'touch ../pwned'; echo '* filter=x' > .git/info/attributes",
		"hides by index":  "git update-index --assume-unchanged a; echo '*' > .git/info/exclude",
	} {
		t.Run(name, func(t *testing.T) {
			source := t.TempDir()
			write(t, source, map[string]string{"a": "one\n"})
			commit(t, source)
			_, base, work := start(t, source)
			write(t, work.dir, map[string]string{"a": "two\n", "new": "x\n"})
			shell(t, work.dir, hostile)
			p, err := base.Patch(t.Context(), work)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"a", "new"}, p.Files); diff != "" {
				t.Error(diff)
			}
			if err := Apply(t.Context(), source, p.Diff); err != nil {
				t.Fatal(err)
			}
			if got := contents(t, source)["a"]; got != "two\n" {
				t.Errorf("a = %q after the patch", got)
			}
			if _, err := os.Lstat(filepath.Join(filepath.Dir(work.dir), "pwned")); err == nil {
				t.Error("a program of the repository was run")
			}
		})
	}
}

func TestPatchRefusesATamperedOriginal(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n"})
	s, base, work := start(t, source)
	write(t, work.dir, map[string]string{"a": "two\n"})
	write(t, s.Dir, map[string]string{"a": "forged\n"})
	if _, err := base.Patch(t.Context(), work); !errors.Is(err, env.ErrInfrastructure) {
		t.Errorf("error = %v, want an infrastructure failure", err)
	}
}

func TestPatchTellsWhatItOmits(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n"})
	_, base, work := start(t, source)
	write(t, work.dir, map[string]string{"a": "two\n", "huge": strings.Repeat("x", maxFile+1), "sub/.GIT": "x"})
	p, err := base.Patch(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a"}, p.Files); diff != "" {
		t.Error(diff)
	}
	var omitted []string
	for _, o := range p.Omitted {
		omitted = append(omitted, o.Path)
	}
	if diff := cmp.Diff([]string{"huge", "sub/.GIT"}, omitted); diff != "" {
		t.Error(diff)
	}
}

// closedTree is a tree whose directory "shut" cannot be read, as the guest reports one without permissions.
type closedTree struct{ dirTree }

func (c closedTree) Tree(ctx context.Context, root string, o env.TreeOptions) ([]env.FileInfo, error) {
	all, err := c.dirTree.Tree(ctx, root, o)
	all = slices.DeleteFunc(all, func(f env.FileInfo) bool { return strings.HasPrefix(f.Path, "shut/") })
	return append(all, env.FileInfo{Path: "shut", Kind: env.KindDir}), err
}

// Files in a directory that cannot be read do not count as deleted.
func TestPatchDoesNotDeleteWhatItCannotSee(t *testing.T) {
	for name, test := range map[string]struct {
		before, after map[string]string
		files         []string
	}{
		"nothing else": {map[string]string{"shut/a": "x\n", "shut/b/c": "x\n"}, nil, nil},
		"an edit": {map[string]string{"shut/a": "x\n", "a": "x\n"}, map[string]string{"a": "y\n"},
			[]string{"a"}},
		"a name that begins alike": {map[string]string{"shut/a": "x\n", "shutter": "x\n"}, map[string]string{"b": "y\n"},
			[]string{"b", "shutter"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, base, work := edited(t, test.before, test.after)
			p, err := base.Patch(t.Context(), closedTree{work})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.files, p.Files); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]Omission{{Path: "shut/", Reason: "the directory cannot be read"}}, p.Omitted); diff != "" {
				t.Errorf("omitted (-want +got):\n%s", diff)
			}
		})
	}
}

// If an agent removes its whole repository, the patch is empty, and that is no infrastructure failure.
func TestPatchOfALostRepository(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n"})
	_, base, work := start(t, source)
	if err := os.RemoveAll(work.dir); err != nil {
		t.Fatal(err)
	}
	p, err := base.Patch(t.Context(), work)
	if err != nil || len(p.Diff) != 0 || len(p.Omitted) != 1 || p.Omitted[0].Path != "./" {
		t.Errorf("patch = %+v, %v", p, err)
	}
}

func TestPatchOfNothingIsEmpty(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n"})
	_, base, work := start(t, source)
	p, err := base.Patch(t.Context(), work)
	if err != nil || len(p.Diff) != 0 {
		t.Errorf("patch = %q, %v", p.Diff, err)
	}
}

// When git fails, the error has git's own message, and not only that of a broken pipe.
func TestPatchTellsWhyGitFails(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n"})
	_, base, work := start(t, source)
	write(t, work.dir, map[string]string{"a": strings.Repeat("two\n", 1<<18)})
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	bin := t.TempDir()
	full := "#!/bin/sh\ncase \"$*\" in *fast-import*) echo 'fatal: No space left on device' >&2; exit 128;; esac\nexec " +
		git + ` "$@"` + "\n"
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte(full), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if _, err := base.Patch(t.Context(), work); err == nil || !strings.Contains(err.Error(), "No space left on device") {
		t.Errorf("error = %v", err)
	}
}
