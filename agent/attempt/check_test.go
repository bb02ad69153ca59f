package attempt_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/attempt"
	"deepswe/env"
)

// lines reads lines such as "NAME ok" and "NAME bad".
func lines(log []byte) attempt.Tests {
	tests := attempt.Tests{}
	for line := range strings.Lines(string(log)) {
		if name, status, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			tests[name] = status == "ok"
		}
	}
	return tests
}

// The tests are run without the patch and with it, and the comparison gives the verdict.
func TestCheck(t *testing.T) {
	const patch = "diff --git a/hello.txt b/hello.txt\n--- a/hello.txt\n+++ b/hello.txt\n@@ -1 +1 @@\n-goodbye\n+hello\n"
	a, p, snapshot := setup(t, nil)
	for command, want := range map[string]struct {
		verdict attempt.Verdict
		fixed   []string
		broke   []string
	}{
		"grep -q hello hello.txt && echo a ok || { echo a bad; false; }": {attempt.Verified, []string{"a"}, nil},
		"grep -q hello hello.txt": {attempt.Verified, nil, nil},
		"grep -q goodbye hello.txt && echo a ok || { echo a bad; false; }":                   {attempt.Broken, nil, []string{"a"}},
		"grep -q goodbye hello.txt":                                                          {attempt.Broken, nil, nil},
		"echo a ok; grep -q hello hello.txt && echo b ok && echo c bad || echo b bad; false": {attempt.Verified, []string{"b"}, nil},
		"echo a ok; echo b bad; false":                                                       {attempt.Unverified, nil, nil},
		"touch mark && test $(ls | grep -c mark) = 1":                                        {attempt.Unverified, nil, nil},
		"grep -q goodbye hello.txt && { echo a bad; false; } || true":                        {attempt.Verified, []string{"a"}, nil},
	} {
		t.Run(command, func(t *testing.T) {
			c, err := a.Check(t.Context(), env.Task{ID: "t"}, snapshot,
				attempt.Trial{Patch: []byte(patch), Command: command, BaseCommand: command, Read: lines})
			if err != nil {
				t.Fatal(err)
			}
			if c.Verdict != want.verdict || !cmp.Equal(c.Fixed, want.fixed) || !cmp.Equal(c.Broke, want.broke) {
				t.Errorf("%s, fixed %q, broke %q: want %+v", c.Verdict, c.Fixed, c.Broke, want)
			}
		})
	}
	if n := p.open.Load(); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	bad := attempt.Trial{Patch: []byte("no patch"), Command: "true", BaseCommand: "true", Read: lines}
	if _, err := a.Check(t.Context(), env.Task{ID: "t"}, snapshot, bad); err == nil {
		t.Error("a patch that does not apply was tested")
	}
}

// Tests that the patch adds must fail on the old code, whatever the other tests do.
func TestCheckOfTheTestsOfThePatch(t *testing.T) {
	const fix = "diff --git a/hello.txt b/hello.txt\n--- a/hello.txt\n+++ b/hello.txt\n@@ -1 +1 @@\n-goodbye\n+hello\n"
	added := func(script string) string {
		return "diff --git a/t[1]*.sh b/t[1]*.sh\nnew file mode 100644\n--- /dev/null\n+++ b/t[1]*.sh\n@@ -0,0 +1 @@\n+" +
			script + "\n"
	}
	const named = `echo old ok; echo same ok; for f in t*.sh; do test ! -f "$f" || . "./$f" || exit 1; done`
	const passes = `grep -q hello hello.txt && echo new ok || { echo new bad; false; }`
	a, _, snapshot := setup(t, nil)
	for name, c := range map[string]struct {
		script, command string
		verdict         attempt.Verdict
		fixed           []string
		unchanged       int
		unbuilt         []string
	}{
		"fails before":             {passes, named, attempt.Verified, []string{"new"}, 2, nil},
		"fails before, only named": {`grep -q hello hello.txt || { echo new bad; false; }`, named, attempt.Verified, []string{"new"}, 2, nil},
		"cannot be built before": {`grep -q hello hello.txt || exit 1; echo new ok`, named, attempt.Verified, []string{"new"}, 2,
			[]string{"new"}},
		"an old test is changed":    {`grep -q hello hello.txt && echo old ok || { echo old bad; false; }`, named, attempt.Verified, []string{"old"}, 1, nil},
		"names no tests":            {`grep -q hello hello.txt`, `test ! -f t*.sh || . ./t*.sh`, attempt.Verified, nil, 0, nil},
		"passes before as well":     {`echo new ok`, named, attempt.Unverified, nil, 2, nil},
		"fails before and after":    {`echo new bad`, named, attempt.Unverified, nil, 2, nil},
		"is skipped, names nothing": {`true`, `test ! -f t*.sh || . ./t*.sh`, attempt.Unverified, nil, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := a.Check(t.Context(), env.Task{ID: "t"}, snapshot, attempt.Trial{
				Patch: []byte(fix + added(c.script)), Command: c.command, BaseCommand: c.command, Read: lines,
				TestFiles: []string{"t[1]*.sh"},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got.Verdict != c.verdict || !cmp.Equal(got.Fixed, c.fixed) || got.Unchanged != c.unchanged ||
				!cmp.Equal(got.Unbuilt, c.unbuilt) || got.Old == nil {
				t.Errorf("%s, fixed %q, %d unchanged: want %+v\n%s", got.Verdict, got.Fixed, got.Unchanged, c, got.Patched.Log)
			}
		})
	}
}

// One added test that proves a fix is not enough if another added one fails, whether or not the tests that were there
// pass, or were run at all.
func TestCheckOfAnAddedTestThatFails(t *testing.T) {
	const patch = "diff --git a/t1.sh b/t1.sh\nnew file mode 100644\n--- /dev/null\n+++ b/t1.sh\n@@ -0,0 +1 @@\n" +
		"+echo other bad; grep -q hello hello.txt && echo new ok || echo new bad\n" +
		"diff --git a/hello.txt b/hello.txt\n--- a/hello.txt\n+++ b/hello.txt\n@@ -1 +1 @@\n-goodbye\n+hello\n"
	a, _, snapshot := setup(t, nil)
	for name, c := range map[string]struct {
		base    string
		verdict attempt.Verdict
	}{
		"those before pass":     {"echo old ok", attempt.Broken},
		"those before fail":     {"echo old bad; false", attempt.Unverified},
		"those before are left": {"", attempt.Unverified},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := a.Check(t.Context(), env.Task{ID: "t"}, snapshot, attempt.Trial{
				Patch: []byte(patch), Command: c.base + "\n. ./t1.sh; false", BaseCommand: c.base, Read: lines,
				TestFiles: []string{"t1.sh"},
			})
			if err != nil || got.Verdict != c.verdict || !slices.Contains(got.Fixed, "new") {
				t.Errorf("%s, fixed %q, want %s: %v\n%s", got.Verdict, got.Fixed, c.verdict, err, got.Patched.Log)
			}
		})
	}
}

// A test that fails in only one of the runs on the old code proves nothing, whichever run it was.
func TestCheckOfFlakyTests(t *testing.T) {
	const patch = "diff --git a/t1.sh b/t1.sh\nnew file mode 100644\n--- /dev/null\n+++ b/t1.sh\n@@ -0,0 +1 @@\n+true\n"
	a, _, snapshot := setup(t, nil)
	for _, c := range []struct {
		fails string // the runs that fail
		files []string
		want  []string
	}{
		{"1", nil, nil}, {"12", nil, []string{"flaky"}},
		{"1", []string{"t1.sh"}, nil}, {"3", []string{"t1.sh"}, nil}, {"2", []string{"t1.sh"}, nil},
		{"23", []string{"t1.sh"}, []string{"flaky"}},
	} {
		count := filepath.Join(t.TempDir(), "count")
		command := "echo >>" + count + `; echo same ok; case ` + c.fails + ` in *$(wc -l <` + count +
			`)*) echo flaky bad; false;; *) echo flaky ok;; esac`
		got, err := a.Check(t.Context(), env.Task{ID: "t"}, snapshot, attempt.Trial{
			Patch: []byte(patch), Command: command, BaseCommand: command, Read: lines, TestFiles: c.files,
		})
		if err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(got.Fixed, c.want) || (got.Verdict == attempt.Verified) != (c.want != nil) {
			t.Errorf("run %s of the files %q fails: %s, fixed %q, want %q", c.fails, c.files, got.Verdict, got.Fixed, c.want)
		}
	}
}
