package docker

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/client"
	"pgregory.net/rapid"

	"deepswe/env/disk"
)

func decodeAuth(t *testing.T, encoded string) string {
	t.Helper()
	plain, err := base64.URLEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatalf("%q: %v", encoded, err)
	}
	return string(plain)
}

// frames multiplexes payloads the way a daemon does.
func frames(number byte, payload []byte) []byte {
	header := []byte{number, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(header[4:], uint32(len(payload)))
	return append(header, payload...)
}

func asStream(r io.Reader) *stream {
	near, far := net.Pipe()
	far.Close()
	return newStream(client.HijackedResponse{Conn: near, Reader: bufio.NewReaderSize(r, 16)},
		func(err error) error { return err })
}

// TestStream splits what a guest writes into any frames, with anything on standard error between them, and reads it in
// any pieces.
func TestStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var wire, want, errors []byte
		for range rapid.IntRange(0, 20).Draw(t, "frames") {
			payload := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "payload")
			if rapid.Bool().Draw(t, "stdout") {
				want = append(want, payload...)
				wire = append(wire, frames(frameStdout, payload)...)
			} else {
				errors = append(errors, payload...)
				wire = append(wire, frames(frameStderr, payload)...)
			}
		}
		s := asStream(iotest.HalfReader(bytes.NewReader(wire)))
		got, err := io.ReadAll(iotest.OneByteReader(s))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("read %q, want %q", got, want)
		}
		if got, want := s.stderr.String(), string(errors[max(0, len(errors)-2048):]); got != want {
			t.Fatalf("kept %q of standard error, want %q", got, want)
		}
	})
}

func TestStreamBreaks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wire []byte
		want string
	}{
		"cut in a header":       {[]byte{1, 0, 0}, "unexpected EOF"},
		"cut in standard error": {frames(frameStderr, []byte("abc"))[:9], "EOF"},
		"the daemon complains":  {frames(frameDaemon, []byte("disk full")), "disk full"},
		"not a frame":           {[]byte("HTTP/1.1 500"), "unknown frame"},
	} {
		if _, err := io.ReadAll(asStream(bytes.NewReader(c.wire))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add(frames(frameStdout, []byte("hello")))
	f.Add(append(frames(frameStderr, []byte("oops")), frames(frameStdout, nil)...))
	f.Fuzz(func(t *testing.T, wire []byte) {
		got, _ := io.ReadAll(asStream(bytes.NewReader(wire)))
		if len(got) > len(wire) {
			t.Fatalf("%d bytes came out of %d", len(got), len(wire))
		}
	})
}

func TestCallGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fs callGroup[int]
		var work sync.WaitGroup
		ran := 0
		slow := func(ctx context.Context) (int, error) {
			ran++
			select {
			case <-time.After(time.Minute):
				return ran, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		var callers sync.WaitGroup
		for i := range 5 {
			callers.Go(func() {
				// One caller gives up early, which is no reason for the others to fail.
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(10+i*20)*time.Second)
				defer cancel()
				got, err := fs.do(ctx, t.Context(), &work, "key", slow)
				if late := i >= 3; late && (got != 1 || err != nil) || !late && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("caller %d got %d, %v", i, got, err)
				}
			})
		}
		callers.Wait()
		if ran != 1 {
			t.Errorf("the work ran %d times, want once", ran)
		}
		// Work that nobody waits for is cancelled, and does not stand in the way of the next caller.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := fs.do(ctx, t.Context(), &work, "key", slow); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller without time got %v", err)
		}
		if got, err := fs.do(t.Context(), t.Context(), &work, "key", slow); got != 3 || err != nil {
			t.Errorf("the next caller got %d, %v, want 3", got, err)
		}
		work.Wait()
	})
}

func TestOwner(t *testing.T) {
	t.Parallel()
	self := thisOwner()
	if back, ok := parseOwner(self.String()); !ok || back != self {
		t.Errorf("parseOwner(%q) = %v, %v", self, back, ok)
	}
	if back, ok := parseOwner(self.String() + "/some-provider"); !ok || back != self {
		t.Errorf("a provider of %q is of %v, %v", self, back, ok)
	}
	for _, bad := range []string{"", "a", "a/b", "a/b/c", "a/0/c", "a/-1/c"} {
		if o, ok := parseOwner(bad); ok {
			t.Errorf("parseOwner(%q) = %v, want it refused", bad, o)
		}
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	kid := owner{machine: self.machine}
	var err error
	if kid.Process, err = disk.FindProcess(child.Process.Pid); err != nil {
		t.Fatal(err)
	}
	recycled := kid
	recycled.Start++
	foreign := owner{machine: "elsewhere", Process: disk.Process{PID: 1, Start: 1}}
	check := func(name string, o owner, want disk.Liveness) {
		t.Helper()
		if got := o.liveness(self.machine); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	check("this process", self, disk.Alive)
	check("a child", kid, disk.Alive)
	check("another process with that number", recycled, disk.Dead)
	check("another machine", foreign, disk.Unknown)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a zombie counts as dead", func() bool { return kid.liveness(self.machine) == disk.Dead })
	_ = child.Wait()
	check("a child that was waited for", kid, disk.Dead)
}

func TestLookupUser(t *testing.T) {
	t.Parallel()
	passwd := "root:x:0:0:root:/root:/bin/bash\nbroken\ndev:x:1001:100:,,,:/home/dev:/bin/sh\n"
	group := "root:x:0:\nusers:x:100:\nwheel:x:10:dev\n"
	for spec, want := range map[string]string{
		"dev": "1001:100", "1001": "1001:100", "dev:wheel": "1001:10", "dev:7": "1001:7", "1001:users": "1001:100",
		"2000": "2000:0", "2000:3000": "2000:3000", "nobody": "error", "dev:none": "error",
	} {
		u, err := lookupUser(spec, []byte(passwd), []byte(group))
		got := fmt.Sprint(u.uid, ":", u.gid)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("lookupUser(%q) = %s (%v), want %s", spec, got, err, want)
		}
	}
}

func TestPackTree(t *testing.T) {
	t.Parallel()
	root := write(t, map[string]string{
		"a":                                  "a\n",
		"dir/b":                              "b\r\n",
		"with space/new\nline":               "n",
		"latin-\xe9":                         "bytes",
		strings.Repeat("long/", 60) + "name": "deep",
	})
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
	if err := errors.Join(packTree(t.Context(), tw, root, "repo", user{7, 8}), tw.Close()); err != nil {
		t.Fatal(err)
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
}

func TestRecords(t *testing.T) {
	t.Parallel()
	r := records{filepath.Join(t.TempDir(), "deep", "images.json")}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			err := r.update(func(all map[string]record) bool {
				all[fmt.Sprint(i)] = record{Ref: fmt.Sprint("ref<", i, ">")}
				return true
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	err := r.update(func(all map[string]record) bool {
		if len(all) != 20 || all["7"].Ref != "ref<7>" {
			t.Errorf("20 writers at once left %v", all)
		}
		return false
	})
	if err != nil {
		t.Error(err)
	}
	if err := (records{}).update(func(map[string]record) bool { t.Error("there is nothing to change"); return true }); err != nil {
		t.Error(err)
	}
}

// TestClientFloor guards against a client that no longer speaks to the daemons that are out there.
func TestClientFloor(t *testing.T) {
	t.Parallel()
	if client.MinAPIVersion > "1.41" {
		t.Errorf("the moby client needs API %s; Docker 20.10 speaks 1.41", client.MinAPIVersion)
	}
}
