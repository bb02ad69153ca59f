package verify

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPatchedPaths(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, patch string
		want        []string
	}{
		{"git", "diff --git a/x.py b/x.py\nindex 1..2 100644\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n",
			[]string{"x.py"}},
		{"new file", "diff --git a/d/n b/d/n\nnew file mode 100644\n--- /dev/null\n+++ b/d/n\n", []string{"d/n"}},
		{"mode only", "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n", []string{"run"}},
		{"binary", "diff --git a/i.png b/i.png\nGIT binary patch\nliteral 0\n", []string{"i.png"}},
		{"rename", "diff --git a/old name b/new\nsimilarity index 100%\nrename from old name\nrename to new\n",
			[]string{"new", "old name"}},
		{"blanks", "diff --git a/a b c b/a b c\ndeleted file mode 100644\n", []string{"a b c"}},
		{"quoted", "diff --git \"a/\\303\\251.py\" \"b/\\303\\251.py\"\n--- \"a/\\303\\251.py\"\n+++ \"b/\\303\\251.py\"\n",
			[]string{"é.py"}},
		{"not by git", "--- x.orig/f.c\t2020-01-01 00:00:00\n+++ x/f.c\t2020-01-01 00:00:00\n", []string{"f.c"}},
		{"context diff", "*** a/f.c\tdate\n--- b/f.c\tdate\n***************\n", []string{"f.c"}},
		{"index line", "Index: a/f.c\n===\n", []string{"f.c"}},
		{"indented", "   --- a/f.c\n   +++ b/f.c\n", []string{"f.c"}},
		{"in a mail", "- --- a/f.c\n+++ b/g.c\n", []string{"f.c", "g.c"}},
		{"line ends of Windows", "--- a/f.c\r\n+++ b/f.c\r\n", []string{"f.c"}},
		{"dots", "--- a/./d//f.c\n+++ b/d/e/../f.c\n", []string{"d/f.c"}},
		{"outside", "--- a/../../etc/passwd\n+++ b//etc/passwd\n", []string{"etc/passwd"}},
		{"nothing", "some words\n", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, patchedPaths([]byte(tc.patch))); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIntoRepository(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".git/hooks/post-checkout", "sub/.GIT/config"} {
		if _, found := intoRepository([]byte("--- /dev/null\n+++ b/" + name + "\n")); !found {
			t.Errorf("a patch to %s passed", name)
		}
	}
	if name, found := intoRepository([]byte("--- a/.gitignore\n+++ b/.github/x\n")); found {
		t.Errorf("%s was refused", name)
	}
}

// Whatever a patch looks like, all paths found in it lie inside the repository.
func FuzzPatchedPaths(f *testing.F) {
	f.Add([]byte("diff --git \"a/\\303\" b/x\n--- a/../x\n+++ b/./y\t1\n"))
	f.Fuzz(func(t *testing.T, patch []byte) {
		for _, name := range patchedPaths(patch) {
			if name == "" || name[0] == '/' || name == ".." || strings.HasPrefix(name, "../") || strings.Contains(name, "/../") {
				t.Errorf("found %q", name)
			}
		}
	})
}
