package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/env"
)

func commandCases() []testCase {
	return []testCase{
		{"ExitCodes", testExitCodes},
		{"Streams", testStreams},
		{"Stdin", testStdin},
		{"DirAndEnv", testDirAndEnv},
		{"Shells", testShells},
		{"NotStarted", testNotStarted},
		{"Bytes", testBytes},
		{"Concurrent", testConcurrent},
		{"Ping", func(t *testing.T, s *suite) { s.sandbox(t).ping() }},
	}
}

func testExitCodes(t *testing.T, s *suite) {
	b := s.sandbox(t)
	for _, c := range []struct {
		line   string
		code   int
		signal string
	}{
		{"true", 0, ""},
		{"false", 1, ""},
		{"exit 42", 42, ""},
		{"exit 255", 255, ""},
		{"no-such-program-anywhere", 127, ""},
		{"kill -9 $$", 137, "SIGKILL"},
		{"kill -TERM $$", 143, "SIGTERM"},
		{"sh -c 'kill -9 $$'", 137, ""},
		{"", 0, ""},
	} {
		r := b.run(env.Command{Line: c.line})
		// If a shell's last command is killed, the shell may report either a signal or an exit code.
		if r.ExitCode != c.code || r.Signal != c.signal && !strings.HasPrefix(c.line, "sh ") {
			t.Errorf("%q: exit code %d, signal %q; want %d, %q", c.line, r.ExitCode, r.Signal, c.code, c.signal)
		}
		if r.TimedOut || r.Cancelled || r.Background != 0 {
			t.Errorf("%q: %+v", c.line, r)
		}
	}
}

func testStreams(t *testing.T, s *suite) {
	r := s.sandbox(t).run(env.Command{Line: "echo out; echo err >&2; printf 'no line end'"})
	if got := text(r.Stdout); got != "out\nno line end" {
		t.Errorf("stdout %q", got)
	}
	if got := text(r.Stderr); got != "err\n" {
		t.Errorf("stderr %q", got)
	}
	if r.Stdout.Size != 15 || r.Stderr.Size != 4 {
		t.Errorf("sizes %d and %d", r.Stdout.Size, r.Stderr.Size)
	}
	if r.Elapsed <= 0 {
		t.Errorf("elapsed %v", r.Elapsed)
	}
}

func testStdin(t *testing.T, s *suite) {
	b := s.sandbox(t)
	if r := b.run(env.Command{Line: "cat"}); text(r.Stdout) != "" || r.ExitCode != 0 {
		t.Errorf("without input: %q, exit code %d", text(r.Stdout), r.ExitCode)
	}
	if r := b.run(env.Command{Line: "cat", Stdin: []byte("a\x00b\n")}); text(r.Stdout) != "a\x00b\n" {
		t.Errorf("got %q", text(r.Stdout))
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 300_000)
	r := b.run(env.Command{Line: "wc -c", Stdin: large})
	if strings.TrimSpace(text(r.Stdout)) != strconv.Itoa(len(large)) {
		t.Errorf("%d bytes sent, %s received", len(large), text(r.Stdout))
	}
	// Input that a command does not read does not delay it.
	if r := b.run(env.Command{Line: "exit 3", Stdin: large}); r.ExitCode != 3 {
		t.Errorf("unread input: %+v", r)
	}
	if r := b.run(env.Command{Line: "test -t 0 || test -t 1 || test -t 2"}); r.ExitCode == 0 {
		t.Error("a standard stream is a terminal")
	}
}

func testDirAndEnv(t *testing.T, s *suite) {
	b := s.sandbox(t)
	for _, c := range []struct {
		name, dir, line, want string
	}{
		{"default", "", "pwd", b.Dir()},
		{"absolute", b.dir, "pwd", b.dir},
		{"relative", strings.TrimPrefix(b.dir, b.Dir()+"/"), "pwd", b.dir},
		{"elsewhere", "/", "pwd", "/"},
		{"added", "/", `printf %s "$DEEPSWE_X"`, "a b=c\n\xff"},
		{"later wins", "/", `printf %s "$TWICE"`, "2"},
		{"replaced", "/", `printf %s "$LANG"`, "xx"},
	} {
		cmd := env.Command{Line: c.line, Dir: c.dir, Env: []string{"DEEPSWE_X=a b=c\n\xff", "TWICE=1", "TWICE=2", "LANG=xx"}}
		r, err := b.Run(t.Context(), cmd)
		if err != nil || strings.TrimSuffix(text(r.Stdout), "\n") != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, text(r.Stdout), err, c.want)
		}
	}
	if home := strings.TrimSpace(b.sh(`echo "$HOME"`)); home == "" {
		t.Error("no HOME")
	} else {
		b.sh(`touch "$HOME/.written" && rm "$HOME/.written"`)
	}
}

func testShells(t *testing.T, s *suite) {
	b := s.sandbox(t)
	if r := b.run(env.Command{Line: `echo "$0"`, Shell: "/bin/sh"}); text(r.Stdout) != "sh\n" {
		t.Errorf("asked for sh, got %q", text(r.Stdout))
	}
	if b.run(env.Command{Line: "command -v bash"}).ExitCode == 0 {
		if r := b.run(env.Command{Line: `echo "${BASH_VERSION:+yes}"`}); text(r.Stdout) != "yes\n" {
			t.Errorf("bash exists, but the shell is a different one: %q", text(r.Stderr))
		}
	}
	// Every call gets a new shell.
	b.run(env.Command{Line: "cd /; X=1; export X"})
	if r := b.run(env.Command{Line: `echo "$X$PWD"`}); text(r.Stdout) != b.dir+"\n" {
		t.Errorf("state of a previous call's shell: %q", text(r.Stdout))
	}
	// A command line that is longer than the kernel's limit for an argument.
	long := "printf %s '" + strings.Repeat("x", 300_000) + "' | wc -c; exit 7"
	if r := b.run(env.Command{Line: long}); strings.TrimSpace(text(r.Stdout)) != "300000" || r.ExitCode != 7 {
		t.Errorf("a long line: exit code %d, %q, %q", r.ExitCode, text(r.Stdout), text(r.Stderr))
	}
	r := b.run(env.Command{Line: "printf '%s\\n' 'two\nlines' \"quo'te\" \\$x"})
	if text(r.Stdout) != "two\nlines\nquo'te\n$x\n" {
		t.Errorf("quoting: %q", text(r.Stdout))
	}
}

// testNotStarted checks that a shell that cannot be started is a result: the model wrote the line, and may have
// deleted the directory.
func testNotStarted(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.sh("mkdir gone && rmdir gone && touch file")
	for _, c := range []struct {
		name string
		cmd  env.Command
		says string
	}{
		{"a NUL in the line", env.Command{Line: "echo \x00"}, "NUL"},
		{"no directory", env.Command{Line: "true", Dir: b.path("gone")}, "gone"},
		{"a file for a directory", env.Command{Line: "true", Dir: b.path("file")}, "not a directory"},
		{"no such shell", env.Command{Line: "true", Shell: "/no/such/shell"}, "/no/such/shell"},
	} {
		r := b.run(c.cmd)
		if r.ExitCode != 126 || !strings.Contains(text(r.Stderr), c.says) {
			t.Errorf("%s: exit code %d, %q", c.name, r.ExitCode, text(r.Stderr))
		}
	}
	if r := b.run(env.Command{Line: "\x00", Head: 3, Tail: 2}); len(r.Stderr.Head) != 3 || len(r.Stderr.Tail) != 2 {
		t.Errorf("an explanation is longer than the requested limit: %q", text(r.Stderr))
	}
}

func testBytes(t *testing.T, s *suite) {
	b := s.sandbox(t)
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	if r := b.run(env.Command{Line: "cat; cat all >&2", Stdin: all}); !bytes.Equal(r.Stdout.Head, all) {
		t.Errorf("stdout differs from the input: %q", r.Stdout.Head)
	}
	b.write("all", string(all))
	if r := b.run(env.Command{Line: "cat all >&2"}); !bytes.Equal(r.Stderr.Head, all) {
		t.Errorf("stderr differs from the file: %q", r.Stderr.Head)
	}
}

func testConcurrent(t *testing.T, s *suite) {
	b := s.sandbox(t)
	var calls sync.WaitGroup
	for i := range 32 {
		calls.Go(func() {
			name := b.path(fmt.Sprintf("f%d", i))
			content := bytes.Repeat([]byte{byte('a' + i%26)}, 40_000+i)
			if _, err := b.Write(t.Context(), name, content, env.WriteOptions{}); err != nil {
				t.Error(err)
				return
			}
			r, err := b.Run(t.Context(), env.Command{Line: fmt.Sprintf("sleep 0.0%d; cat f%d; exit %d", i%5, i, i), Dir: b.dir})
			if err != nil || !bytes.Equal(append(r.Stdout.Head, r.Stdout.Tail...), content) || r.ExitCode != i {
				t.Errorf("call %d: exit code %d, %d bytes, %v", i, r.ExitCode, r.Stdout.Size, err)
			}
			data, _, err := b.Read(t.Context(), name, env.ReadOptions{})
			if err != nil || !bytes.Equal(data, content) {
				t.Errorf("call %d: read %d bytes, %v", i, len(data), err)
			}
			if err := b.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}

func limitCases() []testCase {
	return []testCase{
		{"Capture", testCapture},
		{"Timeout", testTimeout},
		{"Cancel", testCancel},
		{"LongLine", testLongLine},
		{"Flood", testFlood},
	}
}

func testCapture(t *testing.T, s *suite) {
	b := s.sandbox(t)
	var want bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	b.write("text", want.String())
	for _, c := range []struct{ head, tail int }{
		{100, 200}, {0, 1}, {1, 0}, {1 << 20, 0}, {0, 1 << 20}, {70_000, 90_000}, {3 << 20, 3 << 20},
	} {
		got := b.run(env.Command{Line: "cat text", Head: c.head, Tail: c.tail}).Stdout
		all := want.Bytes()
		head := all[:min(c.head, len(all))]
		rest := all[len(head):]
		tail := rest[max(0, len(rest)-c.tail):]
		if !bytes.Equal(got.Head, head) || !bytes.Equal(got.Tail, tail) || got.Size != int64(len(all)) {
			t.Errorf("head %d, tail %d: got %d and %d of %d bytes", c.head, c.tail, len(got.Head), len(got.Tail), got.Size)
		}
	}
	r := b.run(env.Command{Line: "cat text"})
	if len(r.Stdout.Head) != 64<<10 || len(r.Stdout.Tail) != 64<<10 {
		t.Errorf("by default %d and %d bytes are kept", len(r.Stdout.Head), len(r.Stdout.Tail))
	}
}

func testTimeout(t *testing.T, s *suite) {
	b := s.sandbox(t)
	polite := "trap 'echo bye; exit 9' TERM; while :; do sleep 0.01; done"
	deaf := "trap '' TERM; while :; do sleep 0.01; done"
	all := b.runAll(
		env.Command{Line: "echo partial; echo err >&2; sleep 100", Timeout: 3 * time.Second},
		env.Command{Line: polite, Timeout: 3 * time.Second, Grace: time.Minute},
		env.Command{Line: deaf, Timeout: time.Second, Grace: 100 * time.Millisecond},
	)
	r := all[0]
	if !r.TimedOut || r.Cancelled || text(r.Stdout) != "partial\n" || text(r.Stderr) != "err\n" ||
		r.ExitCode == 0 {
		t.Errorf("%+v", r)
	}
	if r := b.run(env.Command{Line: "sleep 0.01", Timeout: time.Minute}); r.TimedOut || r.ExitCode != 0 {
		t.Errorf("ended in time, but got %+v", r)
	}
	// The grace period is granted, and a program that uses it is not killed.
	if r = all[1]; !r.TimedOut || r.ExitCode != 9 || text(r.Stdout) != "bye\n" {
		t.Errorf("a program that handles SIGTERM: %+v, %q", r, text(r.Stdout))
	}
	if r = all[2]; !r.TimedOut || r.Signal != "SIGKILL" || r.ExitCode != 137 {
		t.Errorf("a deaf program: %+v", r)
	}
}

func testCancel(t *testing.T, s *suite) {
	b := s.sandbox(t)
	mark := marker()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	r, err := b.Run(ctx, env.Command{Line: "echo before; setsid sleep " + mark + " & sleep " + mark,
		Grace: 100 * time.Millisecond})
	if !errors.Is(err, context.Canceled) || errors.Is(err, env.ErrInfrastructure) {
		t.Errorf("error %v", err)
	}
	if !r.Cancelled || text(r.Stdout) != "before\n" {
		t.Errorf("%+v", r)
	}
	b.goneInside(mark)
	// With a context that has already ended, nothing is started.
	if _, err := b.Run(ctx, env.Command{Line: "touch started", Dir: b.dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if b.run(env.Command{Line: "test -e started"}).ExitCode == 0 {
		t.Error("a call with a cancelled context ran its command")
	}
	if _, _, err := b.Read(ctx, b.path("x"), env.ReadOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// bounded checks that the guest has not used much memory.
func (b *bench) bounded() {
	b.t.Helper()
	line := b.sh("grep VmHWM /proc/$PPID/status")
	var kb int
	if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); err != nil {
		b.t.Fatalf("%q: %v", line, err)
	}
	if kb > 96<<10 {
		b.t.Errorf("the guest has used %d MiB", kb>>10)
	}
}

func testLongLine(t *testing.T, s *suite) {
	b := own(t, s.start(t))
	const size = 40 << 20
	const line = "head -c %d /dev/zero | tr '\\0' x > long; printf needle >> long; tail -c %d long > shorter"
	b.sh(fmt.Sprintf(line, size, size/8))
	r := b.run(env.Command{Line: "cat long"})
	if r.Stdout.Size != size+6 || !strings.HasSuffix(text(r.Stdout), "xneedle") {
		t.Errorf("%d bytes", r.Stdout.Size)
	}
	for _, q := range []env.Query{
		{Term: "needle", Path: b.path("long")}, {Term: "ne+dle$", Regexp: true, Path: b.path("shorter")},
	} {
		m, err := b.Search(t.Context(), q)
		if err != nil || len(m.Matches) != 1 || !m.Matches[0].Cut || !bytes.HasSuffix(m.Matches[0].Text, []byte("xneedle")) {
			t.Errorf("search for %s: %+v, %v", q.Term, m, err)
		}
		if err == nil && len(m.Matches) == 1 && len(m.Matches[0].Text) > 400 {
			t.Errorf("%d bytes of a line", len(m.Matches[0].Text))
		}
	}
	data, info, err := b.Read(t.Context(), b.path("long"), env.ReadOptions{Limit: 5})
	if err != nil || string(data) != "xxxxx" || info.Size != size+6 || info.Version == "" {
		t.Errorf("%q, %+v, %v", data, info, err)
	}
	if _, err := b.Tree(t.Context(), b.dir, env.TreeOptions{}); err != nil {
		t.Error(err)
	}
	b.bounded()
}

func testFlood(t *testing.T, s *suite) {
	b := own(t, s.start(t))
	const size = 4 << 20
	r := b.run(env.Command{Line: fmt.Sprintf("yes | head -c %d", size)})
	if r.TimedOut || r.Stdout.Size != size || !strings.HasPrefix(text(r.Stdout), "y\ny\n") {
		t.Errorf("%d bytes, %+v", r.Stdout.Size, r.TimedOut)
	}
	if r := b.run(env.Command{Line: "yes", Timeout: 500 * time.Millisecond}); !r.TimedOut {
		t.Errorf("an endless command ended: %+v", r)
	}
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			const line = "head -c 50000000 /dev/urandom & yes >&2"
			r, err := b.Run(t.Context(), env.Command{Line: line, Timeout: 400 * time.Millisecond})
			if err != nil || !r.TimedOut {
				t.Errorf("%+v, %v", r.TimedOut, err)
			}
		})
	}
	calls.Wait()
	b.bounded()
	b.ping()
}
