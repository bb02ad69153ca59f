package repo

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deepswe/env"
	"deepswe/env/testkit"
)

func TestPackTree(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"a":                                  "a\n",
		"dir/b":                              "b\r\n",
		"with space/new\nline":               "n",
		"latin-\xe9":                         "bytes",
		strings.Repeat("long/", 60) + "name": "deep",
	} {
		testkit.WriteFile(t, filepath.Join(root, name), text)
	}
	old := time.Date(2001, 2, 3, 4, 5, 6, 700_000_000, time.UTC)
	if err := errors.Join(
		os.Chmod(filepath.Join(root, "a"), 0o4751), os.Chtimes(filepath.Join(root, "a"), old, old),
		os.Symlink("/etc/passwd", filepath.Join(root, "link")), os.Symlink("/etc", filepath.Join(root, "linkdir")),
		syscall.Mkfifo(filepath.Join(root, "pipe"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(root, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	var packed bytes.Buffer
	tw := tar.NewWriter(&packed)
	files, err := Pack(t.Context(), tw, env.Spec{CopyIn: root}, "repo", 7, 8)
	if err := errors.Join(err, tw.Close()); err != nil {
		t.Fatal(err)
	}
	known := map[string]env.KnownFile{}
	for _, f := range files {
		known["repo/"+f.Path] = f
	}
	got := map[string]string{}
	for tr := tar.NewReader(&packed); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 7 || h.Gid != 8 {
			t.Errorf("%s belongs to %d:%d, want 7:8", h.Name, h.Uid, h.Gid)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if f := known[h.Name]; h.Typeflag == tar.TypeReg &&
			(f.Size != h.Size || f.Modified != h.ModTime.Unix() || f.Version != version(content)) {
			t.Errorf("%s: %q, modified %v, is known as %+v", h.Name, content, h.ModTime, f)
		}
		delete(known, h.Name)
		if strings.Contains(h.Name, "long/") && !strings.HasSuffix(h.Name, "name") {
			continue
		}
		got[h.Name] = fmt.Sprintf("%c %o %s%s", h.Typeflag, h.Mode, content, h.Linkname)
		if h.Name == "repo/a" && !h.ModTime.Equal(old.Truncate(time.Second)) {
			t.Errorf("the time of a is %v", h.ModTime)
		}
	}
	want := map[string]string{
		"repo/": "5 755 ", "repo/a": "0 751 a\n", "repo/dir/": "5 755 ", "repo/dir/b": "0 644 b\r\n",
		"repo/with space/": "5 755 ", "repo/with space/new\nline": "0 644 n", "repo/latin-\xe9": "0 644 bytes",
		"repo/link": "2 777 /etc/passwd", "repo/linkdir": "2 777 /etc",
		"repo/" + strings.Repeat("long/", 60) + "name": "0 644 deep",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packed (-want +got):\n%s", diff)
	}
	if len(known) > 0 {
		t.Errorf("known, and not packed: %v", known)
	}
}
