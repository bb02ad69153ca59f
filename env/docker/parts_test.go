package docker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"pgregory.net/rapid"
)

func decodeAuth(t *testing.T, encoded string) string {
	t.Helper()
	plain, err := base64.URLEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatalf("%q: %v", encoded, err)
	}
	return string(plain)
}

// frames wraps a payload in a frame, as a daemon does.
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

// TestStream: what a guest writes arrives in order, however it is divided into frames, and whatever is on standard
// error between them.
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
				// One caller gives up early. The others must not fail because of that.
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
		// Work that nobody waits for is cancelled, and does not hold up the next caller.
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

// TestClientFloor fails when the client no longer supports daemons that are still in use.
func TestClientFloor(t *testing.T) {
	t.Parallel()
	if client.MinAPIVersion > "1.41" {
		t.Errorf("the moby client needs API %s; Docker 20.10 speaks 1.41", client.MinAPIVersion)
	}
}

// Rootless Podman on cgroup v1 has no limits, whatever it reports.
func TestFactsOfPodman(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		root, cgroups string
		want          bool
	}{
		{"/home/me/.local/share/containers/storage", "1", false},
		{"/home/me/.local/share/containers/storage", "2", true},
		{"/var/lib/containers/storage", "1", true},
		{"/var/lib/docker", "1", true},
	} {
		info := system.Info{DockerRootDir: c.root, CgroupVersion: c.cgroups, MemoryLimit: true, PidsLimit: true,
			CPUCfsQuota: true, Architecture: "x86_64"}
		f := newFacts(info)
		if f.MemoryLimit != c.want || f.PidsLimit != c.want || f.CPUCfsQuota != c.want || f.arch != "amd64" {
			t.Errorf("%s, version %s: %+v", c.root, c.cgroups, f)
		}
	}
}
