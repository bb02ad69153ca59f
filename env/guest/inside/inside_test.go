//go:build linux

package inside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/env/disk"
	"deepswe/env/guest"
)

func TestArguments(t *testing.T) {
	for _, args := range [][]string{{"--nonsense"}, {"--dir", "relative"}, {"stray"}, {"--uid", "x"}, {"--gid", "12345"}} {
		var said bytes.Buffer
		if code := Main(args, strings.NewReader(""), io.Discard, &said); code != 2 || said.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, said.String())
		}
	}
}

func alive(mark string) int {
	count := 0
	pids, _ := disk.PIDs()
	for _, pid := range pids {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty of a zombie
		if err == nil && bytes.Contains(line, []byte(mark)) {
			count++
		}
	}
	return count
}

// TestHangUp: when the host is gone, all processes end, even those that have left their parents.
func TestHangUp(t *testing.T) {
	t.Parallel()
	mark := fmt.Sprint(2_000_000_000 + time.Now().UnixNano()%1_000_000_000)
	sleep := "sleep " + mark
	c := start(t, t.TempDir())
	for _, line := range []string{
		sleep + " &", "setsid " + sleep + " >/dev/null 2>&1 &", "(setsid sh -c '(" + sleep + " &) ; exit' &)",
		"trap '' TERM HUP; " + sleep + " &", "sh -c '" + sleep + " & kill -STOP $!' &",
	} {
		if _, err := c.Run(t.Context(), guest.Command{Line: line}); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); alive(mark) < 5; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) { // a background command may begin only after its shell has ended
			t.Fatalf("%d processes are alive", alive(mark))
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(time.Minute); alive(mark) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d processes are still alive", alive(mark))
		}
	}
}

// TestSilence: a host that sends nothing for the agreed time is taken for dead, even if its stream is open.
func TestSilence(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], guest.Arg, "--silence", "200ms")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err == nil || !strings.Contains(said.String(), "nothing received from the host") {
		t.Errorf("%v: %s", err, said.String())
	}
}

// TestTalkativeHost: a host without requests is not taken for dead, because its client sends something now and then.
func TestTalkativeHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		s := &server{options: options{silence: 2 * time.Second}}
		s.wire = guest.NewServer(t.Context(), theirs, func(c *guest.Call) { c.Answer(nil, nil) })
		wrote, ended, listened := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { wrote <- s.wire.Write() }()
		go func() { ended <- s.wire.Read(theirs) }()
		go func() { listened <- s.listen(ended, wrote) }()
		go s.wire.Greet(guest.Hello{Silence: s.options.silence})
		c, err := guest.Connect(t.Context(), ours)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-listened; !errors.Is(err, io.EOF) {
			t.Errorf("the guest ended with %v", err)
		}
		s.wire.Stop()
		s.wire.Wait()
	})
}

// TestLongMatches: a match that is too long for a frame of the usual size still arrives.
func TestLongMatches(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	short, long := strings.Repeat("x", 30<<10), strings.Repeat("x", 60<<10)
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte(short+"\n"+long+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := start(t, dir).Search(t.Context(), guest.Query{Term: "x", MaxLine: len(long)})
	if err != nil || len(m.Matches) != 2 || string(m.Matches[0].Text) != short || string(m.Matches[1].Text) != long {
		t.Errorf("%d matches, %v", len(m.Matches), err)
	}
}

// TestBrokenHost: invalid data from the host ends the guest, which says why.
func TestBrokenHost(t *testing.T) {
	t.Parallel()
	const ping = "\x00\x00\x00\x01\x02\x00\x00\x00\x01\x01" // a payload of one byte, a call, number 1, verb 1
	for name, wire := range map[string]string{
		"junk":            "GET / HTTP/1.1\r\n\r\n",
		"no verb":         "\x00\x00\x00\x00\x02\x00\x00\x00\x01",
		"unknown verb":    "\x00\x00\x00\x01\x02\x00\x00\x00\x01\x7f",
		"junk for a verb": "\x00\x00\x00\x02\x02\x00\x00\x00\x01\x02\xff",
		"half a frame":    ping[:5],
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], guest.Arg)
		cmd.Stdin = strings.NewReader(wire)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Run(); err == nil || said.Len() == 0 {
			t.Errorf("%s: %v, %q", name, err, said.String())
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], guest.Arg)
	cmd.Stdin = strings.NewReader(ping)
	if err := cmd.Run(); err != nil {
		t.Errorf("a proper host that leaves: %v", err)
	}
}

// TestManyBackgrounds: each step's background process is counted for that step, and 40 of them do not break the guest.
func TestManyBackgrounds(t *testing.T) {
	t.Parallel()
	c := start(t, t.TempDir())
	for range 40 {
		if r, err := c.Run(t.Context(), guest.Command{Line: "sleep 1000 & true"}); err != nil || r.Background != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestGoCache: a build uses what the shared cache has, and writes only to its own.
func TestGoCache(t *testing.T) {
	t.Parallel()
	goTool, err := exec.LookPath("go")
	if err != nil || testing.Short() {
		t.Skip("needs the go command, and some time")
	}
	dir := t.TempDir()
	shared, home, module := filepath.Join(dir, "shared"), filepath.Join(dir, "home"), filepath.Join(dir, "module")
	for _, d := range []string{shared, home, module} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"go.mod": "module x\n\ngo 1.24\n", "a.go": "package x\n\nfunc A() int { return 1 }\n",
	} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := func(env ...string) string {
		cmd := exec.CommandContext(t.Context(), goTool, "build", "-x", "./...")
		cmd.Dir = module
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GOFLAGS=", "GOPROXY=off"}, env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	program := "GOCACHEPROG=" + os.Args[0] + " " + guest.Arg + " --go-cache " + shared
	if out := build("GOCACHE=" + shared); !strings.Contains(out, "compile") {
		t.Fatalf("nothing was compiled:\n%s", out)
	}
	before := files(t, shared)
	if out := build(program); strings.Contains(out, "/compile ") {
		t.Errorf("the shared cache was not used:\n%s", out)
	}
	more := []byte("package x\n\nfunc B() int { return 2 }\n")
	if err := os.WriteFile(filepath.Join(module, "b.go"), more, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := build(program); !strings.Contains(out, "/compile ") {
		t.Errorf("a new file was not compiled:\n%s", out)
	}
	if out := build(program); strings.Contains(out, "/compile ") {
		t.Errorf("it was compiled twice:\n%s", out)
	}
	if after := files(t, shared); after != before {
		t.Errorf("the shared cache had %d files and has %d", before, after)
	}
}

func files(t *testing.T, dir string) int {
	t.Helper()
	count := 0
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			count++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}

func FuzzGoCache(f *testing.F) {
	f.Add([]byte(`{"ID":1,"Command":"get","ActionID":"AAAA"}` + "\n" + `{"ID":2,"Command":"close"}` + "\n"))
	f.Add([]byte(`{"ID":1,"Command":"put","ActionID":"AAAA","OutputID":"AAAA","BodySize":3}` + "\n" + `"YWJj"` + "\n"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		t.Setenv("HOME", t.TempDir())
		t.Setenv("XDG_CACHE_HOME", "")
		serveGoCache(t.TempDir(), bytes.NewReader(wire), io.Discard) // it may refuse, but must not panic
	})
}

// TestCancelWhileFeeding: when a call with a body ends early, neither side waits for the other.
func TestCancelWhileFeeding(t *testing.T) {
	t.Parallel()
	c := start(t, t.TempDir())
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		c.Write(ctx, "f", make([]byte, 8<<20), guest.WriteOptions{})
		cancel()
	}
	if _, err := c.Write(t.Context(), "f", []byte("x"), guest.WriteOptions{}); err != nil {
		t.Error(err)
	}
	l, err := c.List(t.Context(), "", guest.ListOptions{Hidden: true})
	if err != nil || len(l.Entries) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestEndAll: what a command leaves is counted and ended, even processes that have left their parents.
func TestEndAll(t *testing.T) {
	t.Parallel()
	mark := fmt.Sprint(2_000_000_000 + time.Now().UnixNano()%1_000_000_000)
	sleep := "sleep " + mark
	c := start(t, t.TempDir())
	line := sleep + " & (setsid sh -c '(" + sleep + " &) ; exec " + sleep + "' &); sh -c '" + sleep + " & kill -STOP $!' &"
	r, err := c.Run(t.Context(), guest.Command{Line: line, EndAll: true})
	if n := alive(mark); err != nil || r.Background == 0 || n > 0 {
		t.Errorf("%d left running, and %d of them are alive: %v", r.Background, n, err)
	}
}

// TestStandardLibraryOnly: the guest links nothing else, because all of it is copied into every container.
func TestStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command")
	}
	const notStandard = "{{if not .Standard}}{{.ImportPath}}{{end}}"
	out, err := exec.CommandContext(t.Context(), goTool, "list", "-deps", "-f", notStandard, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := []string{"deepswe/env/disk", "deepswe/env/guest", "deepswe/env/guest/inside"}
	if got := strings.Fields(string(out)); !slices.Equal(got, want) {
		t.Errorf("links %q, want %q and the standard library", got, want)
	}
}
