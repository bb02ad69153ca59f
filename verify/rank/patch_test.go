package rank

import (
	"strings"
	"testing"
)

const one = `diff --git a/a.py b/a.py
index 111..222 100644
--- a/a.py
+++ b/a.py
@@ -1,2 +1,2 @@ def f():
 x
-y
+z
`

const two = `diff --git a/b.py b/b.py
new file mode 100644
index 000..333
--- /dev/null
+++ b/b.py
@@ -0,0 +1 @@
+--- a line that looks like a header
`

func TestPatchKey(t *testing.T) {
	t.Parallel()
	base := PatchKey([]byte(one + two))
	for name, tc := range map[string]struct {
		patch string
		same  bool
	}{
		"order of files":        {two + one, true},
		"index lines":           {strings.ReplaceAll(one, "111..222", "abc..def") + two, true},
		"no index lines":        {strings.ReplaceAll(one, "index 111..222 100644\n", "") + two, true},
		"words after the @@":    {strings.ReplaceAll(one, "@@ def f():", "@@ class C:") + two, true},
		"time stamps":           {strings.ReplaceAll(one, "--- a/a.py", "--- a/a.py\t2026-01-01 00:00:00") + two, true},
		"a mail around it":      {"From: somebody\nSubject: fix\n\n" + one + two, true},
		"CRLF in headers":       {strings.ReplaceAll(one, "b/a.py\n", "b/a.py\r\n") + two, true},
		"another line":          {strings.ReplaceAll(one, "+z", "+w") + two, false},
		"another place":         {strings.ReplaceAll(one, "@@ -1,2 +1,2", "@@ -2,2 +2,2") + two, false},
		"a line of blanks":      {strings.ReplaceAll(one, "+z", "+z ") + two, false},
		"CRLF in the content":   {strings.ReplaceAll(one, "+z\n", "+z\r\n") + two, false},
		"another mode":          {one + strings.ReplaceAll(two, "100644", "100755"), false},
		"one file only":         {one, false},
		"a file twice":          {one + one + two, false},
		"no newline at the end": {one + two + "\\ No newline at end of file\n", false},
	} {
		if got := PatchKey([]byte(tc.patch)) == base; got != tc.same {
			t.Errorf("%s: the same %v, want %v", name, got, tc.same)
		}
	}
	for name, patch := range map[string]string{
		"nothing": "", "blanks": " \n\t\n",
	} {
		if PatchKey([]byte(patch)) != "" {
			t.Errorf("%s counts as a change", name)
		}
	}
	rename := "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"
	plain := "--- x.c\n+++ x.c\n@@ -1 +1 @@\n-a\n+b\n--- y.c\n+++ y.c\n@@ -1 +1 @@\n-a\n+b\n"
	if files := normalized([]byte(plain)); len(files) != 2 {
		t.Errorf("a plain diff of two files is read as %q", files)
	}
	for _, patch := range []string{"not a patch", rename, plain, "diff --git a/x b/x\nnew file mode 100644\n"} {
		if PatchKey([]byte(patch)) == "" || PatchKey([]byte(patch)) == base {
			t.Errorf("%q has the key %q", patch, PatchKey([]byte(patch)))
		}
	}
}

func FuzzPatchKey(f *testing.F) {
	f.Add([]byte(one + two))
	f.Add([]byte("--- a\n+++ b\n@@ -1,99999999999 +1 @@\n"))
	f.Fuzz(func(t *testing.T, patch []byte) {
		if (PatchKey(patch) == "") != (strings.TrimSpace(string(patch)) == "") {
			t.Errorf("%q has the key %q", patch, PatchKey(patch))
		}
	})
}
