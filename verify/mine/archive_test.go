package mine

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
)

// packed returns an archive of the given kind. files are names and contents in turns.
func packed(t *testing.T, kind string, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	var failed []error
	switch kind {
	case "zip":
		w := zip.NewWriter(&b)
		for i := 0; i < len(files); i += 2 {
			f, err := w.Create(files[i])
			if err == nil {
				_, err = io.WriteString(f, files[i+1])
			}
			failed = append(failed, err)
		}
		failed = append(failed, w.Close())
	case "tar":
		w := tar.NewWriter(&b)
		for i := 0; i < len(files); i += 2 {
			failed = append(failed, w.WriteHeader(&tar.Header{Name: files[i], Size: int64(len(files[i+1])), Mode: 0o644}))
			_, err := io.WriteString(w, files[i+1])
			failed = append(failed, err)
		}
		failed = append(failed, w.Close())
	case "gz":
		w := gzip.NewWriter(&b)
		_, err := io.WriteString(w, files[1])
		failed = append(failed, err, w.Close())
	}
	for _, err := range failed {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// A copy of a change is found in the archives of all package managers. An archive that cannot be read counts as a copy.
func TestHoldsCopy(t *testing.T) {
	t.Parallel()
	lines := []string{"quotient, remainder = divmod(n, 2)", "return quotient, remainder", "raise TooLarge(n, quotient)"}
	one, two, old := "  "+lines[0]+"\n", lines[1]+"\n", "return n // 2\n"
	compressed := func(files ...string) string { return packed(t, "gz", "", packed(t, "tar", files...)) }
	for name, tc := range map[string]struct {
		archive string
		want    bool
	}{
		"a wheel":               {packed(t, "zip", "a.py", old, "b.py", one+two), true},
		"an older wheel":        {packed(t, "zip", "a.py", old, "b.py", one), false},
		"in two files":          {packed(t, "zip", "a.py", one, "b.py", two), true},
		"a crate":               {compressed("a.rs", one+two), true},
		"an older crate":        {compressed("a.rs", old), false},
		"a gem":                 {packed(t, "tar", "metadata", "", "data.tar.gz", compressed("a.rb", one+two)), true},
		"a file like a zip":     {compressed("a.zip", "PK\x03\x04"+old), false},
		"a copy like a zip":     {compressed("a.zip", "PK\x03\x04"+one+two), true},
		"no archive":            {old, true},
		"half of an archive":    {compressed("a.rs", strings.Repeat(old, 999))[:50], true},
		"more than can be read": {packed(t, "gz", "", strings.Repeat("x", mostArchived+1)), true},
	} {
		if got := holdsCopy([]byte(tc.archive), lines); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}
