package repo

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// changed runs a script on a copy of source as the agent's work, and returns the patch.
func changed(t *testing.T, source, script string) []byte {
	t.Helper()
	_, base, work := start(t, source)
	shell(t, work.dir, script)
	p, err := base.Patch(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	return p.Diff
}

func TestApplyCarriesEverything(t *testing.T) {
	for name, script := range map[string]string{
		"CRLF":              `printf 'x\r\ny\r\n' > crlf`,
		"binary":            `printf '\000\377\001' > bin`,
		"the right to run":  `chmod +x a`,
		"a rename":          `mv a moved`,
		"a link":            `rm a; ln -s b/c a`,
		"a new folder":      `mkdir -p n/m; echo x > n/m/f`,
		"a removed folder":  `rm -r b`,
		"no final newline":  `printf 'no newline' > a`,
		"a name with a tab": `printf x > "$(printf 'a\tb c')"`,
	} {
		t.Run(name, func(t *testing.T) {
			source := t.TempDir()
			write(t, source, map[string]string{"a": "one\n", "b/c": "two\n", "crlf": "x\r\nz\r\n", "bin": "\x00\x01"})
			commit(t, source)
			// git's conversion of line endings must not apply here.
			write(t, source, map[string]string{".git/info/attributes": "* text=auto eol=lf\n"})
			want := t.TempDir()
			if err := os.CopyFS(want, os.DirFS(source)); err != nil {
				t.Fatal(err)
			}
			shell(t, want, script)
			if err := Apply(t.Context(), source, changed(t, source, script)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(contents(t, want), contents(t, source)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// If git fails while it writes, the directory is restored.
func TestApplyPutsBackWhatWasHalfWritten(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n", "gone": "still here\n", "other": "untouched\n"})
	if err := os.Symlink("a", filepath.Join(source, "link")); err != nil {
		t.Fatal(err)
	}
	before := contents(t, source)
	patch := changed(t, source, "echo two > a; rm gone link; mkdir -p new/deep; echo x > new/deep/file")

	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	bin := t.TempDir()
	breaking := "#!/bin/sh\ncase \"$*\" in *numstat*) exec " + git + ` "$@";; *apply*) printf tw > a; rm gone link; mkdir -p new/deep; printf x > new/deep/file
echo 'fatal: unable to write file: No space left on device' >&2; exit 128;; esac
exec ` + git + ` "$@"` + "\n"
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte(breaking), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	err = Apply(t.Context(), source, patch)
	if err == nil || errors.Is(err, ErrConflict) {
		t.Errorf("error = %v, want one that is not a conflict", err)
	}
	if diff := cmp.Diff(before, contents(t, source)); diff != "" {
		t.Errorf("(-before +after)\n%s", diff)
	}
	if _, err := os.Lstat(filepath.Join(source, "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the new folder is still there: %v", err)
	}
}

func TestTouchedReadsRenames(t *testing.T) {
	out := "1\t2\ta\tname\x00-\t-\tbinary\x000\t0\t\x00old\tx\ty\x00new\x003\t0\tlast\x00"
	if got, want := touched([]byte(out)), []string{"a\tname", "binary", "old\tx\ty", "new", "last"}; !slices.Equal(got,
		want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// In a subfolder, Branch and Apply act on the whole repository.
func TestBranchFromAFolder(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n", "sub/b": "one\n"})
	commit(t, source)
	shell(t, source, "git config user.name u && git config user.email u@u")
	sub := filepath.Join(source, "sub")
	patch := changed(t, sub, "echo two > a; echo two > sub/b")
	if _, _, err := Branch(t.Context(), sub, "fix", "Fix it", patch, ""); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, source, "git show fix:a fix:sub/b"); got != "two\ntwo\n" {
		t.Errorf("got %q", got)
	}
	if err := Apply(t.Context(), sub, patch); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, source, "cat a sub/b"); got != "two\ntwo\n" {
		t.Errorf("applied, it holds %q", got)
	}
	t.Chdir(sub)
	if err := CheckBranch(t.Context(), ".", "other"); err != nil {
		t.Error(err)
	}
	if _, _, err := Branch(t.Context(), t.TempDir(), "fix", "Fix it", patch, ""); err == nil {
		t.Error("a branch was made outside of any repository")
	}
}

// Some repositories use SHA-256, whose hashes have 64 digits.
func TestBranchOfSHA256(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n"})
	shell(t, source, "git init -q --object-format=sha256 . && git config user.name u && git config user.email u@u && "+
		"git add -A && git commit -qm one")
	patch := changed(t, source, "echo two > a")
	if _, _, err := Branch(t.Context(), source, "fix", "Fix it", patch, ""); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, source, "git show fix:a"); got != "two\n" {
		t.Errorf("got %q", got)
	}
}

// A patch that is already committed gets no branch.
func TestBranchOfAnAppliedPatch(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n"})
	commit(t, source)
	shell(t, source, "git config user.name u && git config user.email u@u")
	base, err := Head(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	patch := changed(t, source, "echo two > a")
	shell(t, source, "echo two > a && git commit -qam two")
	if _, _, err := Branch(t.Context(), source, "again", "Fix it", patch, base); !errors.Is(err, ErrApplied) {
		t.Errorf("a second time: %v", err)
	}
}

// Neither hooks nor filters of the user's repository run.
func TestNothingOfTheRepositoryRuns(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n", "b.txt": "x\n"})
	commit(t, source)
	shell(t, source, `git config user.name u; git config user.email u@u
echo '* filter=evil diff=evil' > .git/info/attributes
for k in filter.evil.clean filter.evil.smudge filter.evil.process core.fsmonitor diff.evil.command diff.evil.textconv core.editor core.sshCommand uploadpack.packObjectsHook; do git config $k "touch '$PWD/.git/pwned'; cat"; done
mkdir -p .git/hooks
for h in pre-commit commit-msg post-commit pre-applypatch post-applypatch post-checkout reference-transaction post-index-change prepare-commit-msg; do
printf '#!/bin/sh\ntouch "%s"\n' "$PWD/.git/pwned" > .git/hooks/$h; chmod +x .git/hooks/$h; done`)
	patch := changed(t, source, "echo two > a")
	if _, _, err := Branch(t.Context(), source, "fix", "Fix it", patch, ""); err != nil {
		t.Fatal(err)
	}
	if err := Apply(t.Context(), source, patch); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(source, ".git", "pwned")); err == nil {
		t.Error("a program of the repository ran")
	}
}

func TestApplyIsAllOrNothing(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n", "b": "one\n"})
	_, base, work := start(t, source)
	write(t, work.dir, map[string]string{"a": "two\n", "b": "two\n"})
	p, err := base.Patch(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	write(t, source, map[string]string{"b": "somebody else's\n"})
	if err := Apply(t.Context(), source, p.Diff); !errors.Is(err, ErrConflict) {
		t.Errorf("error = %v, want a conflict", err)
	}
	if got := contents(t, source)["a"]; got != "one\n" {
		t.Errorf("a = %q: half of the patch was applied", got)
	}
	write(t, source, map[string]string{"b": "one\n"})
	for _, want := range []error{nil, ErrApplied} {
		if err := Apply(t.Context(), source, p.Diff); !errors.Is(err, want) {
			t.Errorf("error = %v, want %v", err, want)
		}
	}
}

func TestBranchLeavesTheWorkTreeAlone(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n"})
	commit(t, source)
	shell(t, source, "git config user.name u && git config user.email u@u")
	_, base, work := start(t, source)
	write(t, work.dir, map[string]string{"a": "two\n"})
	p, err := base.Patch(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Branch(t.Context(), source, "fix", "Fix it", p.Diff, ""); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, source, "git show fix:a; git status --porcelain; git branch --show-current"); got != "two\nmain\n" {
		t.Errorf("got %q", got)
	}
	if _, _, err := Branch(t.Context(), source, "fix", "Fix it", p.Diff, ""); err == nil {
		t.Error("an existing branch was taken")
	}
	if _, _, err := Branch(t.Context(), source, "bad..name", "Fix it", p.Diff, ""); err == nil {
		t.Error("a bad name was taken")
	}
}

// A branch starts at HEAD if the patch can be merged there, and otherwise at the commit that the patch was made on.
func TestBranchAfterHeadHasMoved(t *testing.T) {
	for name, c := range map[string]struct {
		moves  string
		onBase bool
		want   string
	}{
		"another file": {"echo x > other; git add -A; git commit -qm on", false, "one\ntwo\nthree\nfour\nFIVE\n"},
		"another line": {"sed -i s/one/ONE/ a; git commit -qam on", false, "ONE\ntwo\nthree\nfour\nFIVE\n"},
		"another line, with a program that merges": {
			`echo 'a merge=x' >.gitattributes; git config merge.x.driver "touch '$PWD/ran'; exit 1"
git add -A; sed -i s/one/ONE/ a; git commit -qam on`, false, "ONE\ntwo\nthree\nfour\nFIVE\n",
		},
		"the same line":  {"sed -i s/five/Five/ a; git commit -qam on", true, "one\ntwo\nthree\nfour\nFIVE\n"},
		"a removed file": {"git rm -q a; git commit -qm off", true, "one\ntwo\nthree\nfour\nFIVE\n"},
	} {
		t.Run(name, func(t *testing.T) {
			source := t.TempDir()
			write(t, source, map[string]string{"a": "one\ntwo\nthree\nfour\nfive\n"})
			commit(t, source)
			shell(t, source, "git config user.name u && git config user.email u@u")
			base, err := Head(t.Context(), source)
			if err != nil || len(base) != 40 {
				t.Fatalf("head is %q, %v", base, err)
			}
			patch := changed(t, source, "sed -i s/five/FIVE/ a")
			shell(t, source, c.moves)
			_, parent, err := Branch(t.Context(), source, "fix", "Fix it", patch, base)
			if err != nil {
				t.Fatal(err)
			}
			if got := shell(t, source, "git show fix:a"); got != c.want || (parent == base) != c.onBase {
				t.Errorf("the branch starts at %s and has %q", parent, got)
			}
			if got := shell(t, source, "git status --porcelain"); got != "" {
				t.Errorf("the work tree is touched: %q", got)
			}
		})
	}
}

func TestModified(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n", "b b": "one\n", "c": "one\n", "d": "one\n", "sub/e": "one\n"})
	commit(t, source)
	shell(t, source, `echo two >> 'b b'; rm c; touch -d 2001-01-01 a; chmod +x d; echo new > new; echo two > sub/e; git add sub/e`)
	got, err := Modified(t.Context(), filepath.Join(source, "sub"))
	if want := []string{"b b", "c", "d", "sub/e"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}
