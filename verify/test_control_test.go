package verify

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env"
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

func TestControlsTests(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		names string
		want  bool
	}{
		{"conftest.py a/b/conftest.py pytest.ini tox.ini setup.cfg pyproject.toml sitecustomize.py evil.pth", true},
		{"tests/test_a.py test_a.py pkg/a_test.py django/tests.py tests/data/x.json x/__tests__/y.js", true},
		{"a_test.go jest.config.mjs karma.conf.js .mocharc.yml src/a.test.tsx src/a.spec.ts package.json spec/a.rb", true},
		{".venv/lib/python3/site-packages/x.py node_modules/jest/index.js test/fixtures/a.json FooTest.java", true},
		{"src/a.py django/test/client.py testing/mod.py latest.js contest.py attest.go README.md jest.md src/spec/a.py",
			false},
		{"src/conf.py babel/core.py karma.py lib/configuration.rb ABTest.tsx", false},
	} {
		for name := range strings.FieldsSeq(tc.names) {
			if got := controlsTests(name); got != tc.want {
				t.Errorf("controlsTests(%q) = %v", name, got)
			}
		}
	}
}

func TestShadows(t *testing.T) {
	t.Parallel()
	root := []string{"src", "coverage", "io.py"}
	for name, want := range map[string]bool{
		"pytest.py": true, "pytest/__init__.py": true, "_pytest/runner.py": true, "re.py": true, "json.cpython-311.so": true,
		"coverage/control.py": false, "io.py": false, "src/pytest.py": false, "pytest.md": false, "app.py": false,
	} {
		if got := shadows(name, root); got != want {
			t.Errorf("shadows(%q) = %v", name, got)
		}
	}
}

func TestSteeringFiles(t *testing.T) {
	t.Parallel()
	task := env.Task{Tests: env.Tests{
		GoldPatch:  "--- a/setup.cfg\n+++ b/setup.cfg\n",
		FailToPass: []string{"checks/odd.py::test_a", "test_b (module.Case)"},
	}}
	patch := "--- a/setup.cfg\n+++ b/setup.cfg\n--- a/tox.ini\n+++ b/tox.ini\n--- a/checks/odd.py\n+++ b/checks/odd.py\n--- a/src/a.py\n+++ b/src/a.py\n"
	want := []string{"checks/odd.py", "tox.ini"}
	if got := controlPaths(task, []byte(patch), nil); !slices.Equal(got, want) {
		t.Errorf("steering files %q, want %q: what the solution changes may be changed, what is expected to pass may not",
			got, want)
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

// Whatever a patch looks like, the names found in it stay in the repository.
func FuzzTouched(f *testing.F) {
	f.Add([]byte("diff --git \"a/\\303\" b/x\n--- a/../x\n+++ b/./y\t1\n"))
	f.Fuzz(func(t *testing.T, patch []byte) {
		for _, name := range patchedPaths(patch) {
			if name == "" || name[0] == '/' || name == ".." || strings.HasPrefix(name, "../") || strings.Contains(name, "/../") {
				t.Errorf("touched found %q", name)
			}
		}
	})
}
