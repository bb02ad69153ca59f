package diff

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// patch has lines in its hunks that look like headers.
const patch = `diff --git a/one.py b/one.py
index 1..2 100644
--- a/one.py
+++ b/one.py
@@ -1,3 +1,3 @@
 diff --git a/no b/no
--- a/no
-second
+++ b/no
+more
diff --git a/new file.py b/new file.py
new file mode 100644
--- /dev/null
+++ b/new file.py
@@ -0,0 +1 @@
+x
diff --git a/gone.py b/gone.py
deleted file mode 100644
diff --git a/old name.py b/moved.py
similarity index 100%
rename from old name.py
rename to moved.py
diff --git "a/\303\251.py" "b/\303\251.py"
--- "a/\303\251.py"
+++ "b/\303\251.py"
@@ -1 +1 @@
-x
+y
diff --git a/i.png b/i.png
index 1..2 100644
GIT binary patch
literal 1
-cmZ

diff -u a/bare.py b/bare.py
--- a/bare.py
+++ b/bare.py
@@ -1 +1 @@
-x
+y
`

func TestFiles(t *testing.T) {
	t.Parallel()
	want := []File{
		{Old: "one.py", New: "one.py", Added: 2, Removed: 2},
		{New: "new file.py", Added: 1},
		{Old: "gone.py"},
		{Old: "old name.py", New: "moved.py"},
		{Old: "é.py", New: "é.py", Added: 1, Removed: 1},
		{Old: "i.png", New: "i.png", Binary: true},
		{Old: "bare.py", New: "bare.py", Added: 1, Removed: 1},
	}
	got := Files("From: somebody\n" + patch)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(File{}, "Text")); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	text := ""
	for _, f := range got {
		text += f.Text
	}
	if diff := cmp.Diff(patch, text); diff != "" {
		t.Errorf("the parts of the files (-want +got):\n%s", diff)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]Kind{
		"":                                     nil,
		"@@ -1 +1,0 @@ f\n-a\n\\ No\n+b\n":     {Hunk, Removed, Mark, Header},
		"@@ -0,0 +1,2 @@\n+--- a\n+\n-x\n":     {Hunk, Added, Added, Header},
		"@@ -1,2 +1,2 @@\n a\n\n@@ -1 +1 @@\n": {Hunk, Context, Context, Hunk, Broken},
		"@@ -1,2 +1 @@\n+a\n+b\n-c\n":          {Hunk, Added, Broken, Header},
		"@@ -1 +1 @@\n?\n-c\n":                 {Hunk, Broken, Header},
		"@@ -1,x +1 @@\n":                      {Broken},
		"@@ -1,99999999999 +1 @@\n":            {Broken},
		"GIT binary patch\nliteral 1\n@@ -1\n\ndiff --git a/x b/x\n": {Binary, Binary, Broken, Binary, Header},
	} {
		var got []Kind
		for l := range Lines(text) {
			got = append(got, l.Kind)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// Whatever the text, its lines together are the text.
func FuzzLines(f *testing.F) {
	f.Add(patch)
	f.Fuzz(func(t *testing.T, text string) {
		var b strings.Builder
		for l := range Lines(text) {
			b.WriteString(l.Text)
		}
		if b.String() != text {
			t.Errorf("the lines of %q are %q", text, b.String())
		}
		Files(text)
	})
}
