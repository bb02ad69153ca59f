package run

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"deepswe/env/testkit"
)

// An archive depends only on a run's files, not on when and by whom it was made.
func TestPack(t *testing.T) {
	t.Parallel()
	d, err := Create(filepath.Join(t.TempDir(), "run"), Manifest{Kind: Eval})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Record(Outcome{Job: Job{Task: "t", Group: "t"}, Tries: 1}); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, d.Path("rollouts", "t", "0", "patch.diff"), "diff")
	if err := os.Symlink("/etc/passwd", d.Path("link")); err != nil {
		t.Fatal(err)
	}
	pack := func() []byte {
		t.Helper()
		var b bytes.Buffer
		if err := Pack(&b, d.Path()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	live := pack()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(d.Path("manifest.json"), d.Manifest.Created, d.Manifest.Created); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(live, pack()) {
		t.Error("the same files give another archive")
	}
	to := t.TempDir()
	if err := Unpack(bytes.NewReader(live), to); err != nil {
		t.Fatal(err)
	}
	r, err := Read(to)
	if err != nil || len(r.Outcomes) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	text, err := os.ReadFile(filepath.Join(to, "rollouts", "t", "0", "patch.diff"))
	if err != nil || string(text) != "diff" {
		t.Errorf("%q, %v", text, err)
	}
	for _, name := range []string{"link", lockFile} {
		if _, err := os.Lstat(filepath.Join(to, name)); err == nil {
			t.Errorf("%s is in the archive", name)
		}
	}
	if err := Pack(&bytes.Buffer{}, t.TempDir()); err == nil {
		t.Error("a directory without a run was packed")
	}
}

// archiveOf returns an archive with one entry.
func archiveOf(t testing.TB, h tar.Header, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	h.Size = int64(len(text))
	err = w.WriteHeader(&h)
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err = errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Nothing is written outside the directory.
func TestUnpackStaysInside(t *testing.T) {
	t.Parallel()
	for _, h := range []tar.Header{
		{Name: "../out"}, {Name: "/tmp/out"}, {Name: "a/../../out"}, {Name: `a\out`},
		{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
	} {
		text := "x"
		if h.Typeflag == tar.TypeSymlink {
			text = ""
		}
		err := Unpack(bytes.NewReader(archiveOf(t, h, text)), t.TempDir())
		if err == nil || !strings.Contains(err.Error(), "is not a file of a run") {
			t.Errorf("%s: %v", h.Name, err)
		}
	}
	if err := Unpack(strings.NewReader("not an archive"), t.TempDir()); err == nil {
		t.Error("another file was unpacked")
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archiveOf(f, tar.Header{Name: "manifest.json"}, "{}"))
	f.Add(archiveOf(f, tar.Header{Name: "../out"}, "{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		parent := t.TempDir()
		inside := filepath.Join(parent, "in")
		if err := os.Mkdir(inside, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = Unpack(bytes.NewReader(data), inside) // whatever it returns
		if all, err := os.ReadDir(parent); err != nil || len(all) != 1 {
			t.Errorf("it wrote outside: %v, %v", all, err)
		}
	})
}
