package dataset

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Applying a patch and then its reverse changes nothing.
func TestReversePatch(t *testing.T) {
	dir, sh := repository(t)
	sh("printf 'a\\n-- b\\nc\\nd\\ne\\nf\\ng\\nh\\ni\\nj\\n' >one.py; printf 'x' >two.py; echo gone >three.py; git add .; git commit -qm one")
	sh("printf 'a\\nB\\nc\\nd\\ne\\nf\\ng\\nh\\n++ i\\nj\\nk\\n' >one.py; printf 'y' >two.py; rm three.py; printf 'new\\n' >four.py; git add -A")
	patch := sh("git diff --cached --no-renames") + "\n"
	reversed, err := reversePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "reversed.diff"), []byte(reversed), 0o644); err != nil {
		t.Fatal(err)
	}
	sh("git apply --index reversed.diff; rm reversed.diff")
	if got := sh("git diff --cached HEAD; git status --porcelain"); got != "" {
		t.Errorf("the reversed patch leaves\n%s\nwant no change; it is\n%s", got, reversed)
	}
}

func TestReversePatchRefuses(t *testing.T) {
	for _, patch := range []string{
		"rename from a\n", "GIT binary patch\n", "old mode 100644\n", "@@ -1 +1\n", "@@ -1,x +1 @@\n",
		"@@ -1,2 +1,2 @@\n a\n", "@@ -1 +1 @@\n+a\n+b\n", "@@ -1 +1 @@\nxyz\n",
	} {
		if got, err := reversePatch(patch); err == nil {
			t.Errorf("reversePatch(%q) = %q, want an error", patch, got)
		}
	}
	if got, err := reversePatch(""); got != "" || err != nil {
		t.Errorf("an empty patch is reversed to %q, %v", got, err)
	}
}

func FuzzReversePatch(f *testing.F) {
	f.Add("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n")
	f.Fuzz(func(t *testing.T, patch string) {
		once, err := reversePatch(patch)
		if err != nil || strings.Contains(patch, "index ") {
			return
		}
		if twice, err := reversePatch(once); err != nil {
			t.Fatalf("the reverse of %q is %q, which cannot be reversed: %v", patch, once, err)
		} else if again, _ := reversePatch(twice); again != once {
			t.Fatalf("%q reversed is %q, then %q, then %q", patch, once, twice, again)
		}
	})
}

// Whatever a line contains, it becomes a task or an error that names the line.
func FuzzRecord(f *testing.F) {
	files, err := filepath.Glob("testdata/records/*.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parse("tasks.jsonl", 7, line, taskFields)
		if err == nil {
			if _, err = r.task(); err == nil {
				return
			}
		}
		if re, ok := errors.AsType[*RecordError](err); !ok || re.Line != 7 {
			t.Fatalf("error is %v", err)
		}
	})
}
