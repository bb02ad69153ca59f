package sandboxtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/env"
)

func treeCases() []testCase {
	return []testCase{
		{"TimeoutKillsAll", testTimeoutKillsAll},
		{"NeighboursLive", testNeighboursLive},
		{"Background", testBackground},
		{"BackgroundGoesOn", testBackgroundGoesOn},
		{"Zombies", testZombies},
		{"ForkBomb", testForkBomb},
		{"ForkBombLeft", testForkBombLeft},
		{"OutOfMemory", testOutOfMemory},
		{"CloseKillsAll", testCloseKillsAll},
	}
}

// running counts the sandbox's processes whose command line contains a text.
func (b *bench) running(text string) int {
	b.t.Helper()
	const list = `cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' '` // not one program for each of many processes
	all := b.run(env.Command{Line: list, Head: 8 << 20})
	if all.ExitCode != 0 || all.Stdout.Size == 0 {
		b.t.Fatalf("the processes cannot be listed: %+v", all)
	}
	return strings.Count(string(all.Stdout.Head), text)
}

func (b *bench) goneInside(mark string) {
	b.t.Helper()
	if n := b.running("sleep " + mark); n != 0 {
		b.t.Errorf("%d processes are still running", n)
	}
}

// escapes returns ways in which a process can outlive its shell, with the marker in its command line.
func escapes(mark string) map[string]string {
	sleep := "sleep " + mark
	return map[string]string{
		"child":           sleep + " & wait",
		"group":           "set -m; " + sleep + " & wait",
		"session":         "setsid " + sleep + " & sleep 100",
		"orphan":          "(" + sleep + " &) ; sleep 100",
		"daemon":          "(setsid sh -c '(" + sleep + " &) ; exit' &) ; sleep 100",
		"deaf":            "trap '' TERM HUP INT; (setsid sh -c \"trap '' TERM; " + sleep + "\" &) ; sleep 100",
		"clean":           "(setsid env -i /bin/sh -c '" + sleep + "' </dev/null >/dev/null 2>&1 &) ; sleep 100",
		"stopped":         sleep + " & kill -STOP $!; sleep 100",
		"stopped daemon":  "(setsid sh -c '" + sleep + " & kill -STOP $!' &) ; sleep 100",
		"closed streams":  "(setsid sh -c 'exec >/dev/null 2>&1 </dev/null; " + sleep + "' &) ; sleep 100",
		"many":            "for i in 1 2 3 4 5 6 7 8 9 10; do (setsid " + sleep + " &) ; done; sleep 100",
		"deep":            "f() { if [ $1 -gt 0 ]; then (f $(($1-1))); else " + sleep + "; fi; }; f 12; true",
		"respawning":      "r() { " + sleep + "; r; }; r",
		"respawning deaf": "trap '' TERM; while :; do " + sleep + "; done",
	}
}

func testTimeoutKillsAll(t *testing.T, s *suite) {
	b := s.sandbox(t)
	names := slices.Sorted(maps.Keys(escapes("")))
	marks, commands := make([]string, len(names)), make([]env.Command, len(names))
	for i, name := range names {
		marks[i] = marker()
		commands[i] = env.Command{
			Line: escapes(marks[i])[name], Timeout: 250 * time.Millisecond, Grace: 150 * time.Millisecond,
		}
	}
	for i, r := range b.runAll(commands...) {
		if !r.TimedOut {
			t.Errorf("%s: %+v: %s", names[i], r, text(r.Stderr))
		}
		if r.Background != 0 {
			t.Errorf("%s: %d background processes reported", names[i], r.Background)
		}
		b.goneInside(marks[i])
	}
}

// testNeighboursLive checks that a timeout kills only the processes of its own command.
func testNeighboursLive(t *testing.T, s *suite) {
	b := s.sandbox(t)
	left, neighbour, victim := marker(), marker(), marker()
	if r := b.run(env.Command{Line: "(setsid sleep " + left + " >/dev/null 2>&1 &)"}); r.Background != 1 {
		t.Errorf("%d in the background", r.Background)
	}
	var calls sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	calls.Go(func() {
		b.Run(ctx, env.Command{Line: "(setsid sleep " + neighbour + " &) ; sleep 100", Grace: 100 * time.Millisecond})
	})
	eventually(t, "the other command has started", func() bool { return b.running("sleep "+neighbour) == 1 })
	r := b.run(env.Command{
		Line: "(setsid sleep " + victim + " &) ; sleep 100", Timeout: 200 * time.Millisecond, Grace: 100 * time.Millisecond,
	})
	if !r.TimedOut {
		t.Errorf("%+v", r)
	}
	b.goneInside(victim)
	if n := b.running("sleep " + neighbour); n != 1 {
		t.Errorf("%d processes of the other command", n)
	}
	if n := b.running("sleep " + left); n != 1 {
		t.Errorf("%d processes of an earlier command", n)
	}
	cancel()
	calls.Wait()
	b.goneInside(neighbour)
	b.run(env.Command{Line: "pkill -f 'sleep " + left + "'"})
}

func testBackground(t *testing.T, s *suite) {
	b := own(t, s.start(t))
	mark := marker()
	r := b.run(env.Command{Line: "sleep " + mark + " & echo done", Timeout: time.Minute})
	if r.ExitCode != 0 || r.TimedOut || text(r.Stdout) != "done\n" || r.Background != 1 {
		t.Errorf("%+v, %q", r, text(r.Stdout))
	}
	if r := b.run(env.Command{Line: "true"}); r.Background != 0 {
		t.Errorf("%d background processes reported for a command without any", r.Background)
	}
	if n := b.running("sleep " + mark); n != 1 {
		t.Errorf("%d are running", n)
	}
	r = b.run(env.Command{Line: "for i in 1 2 3; do setsid sleep " + mark + " >/dev/null 2>&1 & done; sleep 0.1; exit 5"})
	if r.ExitCode != 5 || r.Background != 3 {
		t.Errorf("%+v", r)
	}
	// Output written while the shell still runs is captured completely.
	r = b.run(env.Command{Line: "(echo from a child) & sleep " + mark + " & wait %1; printf end"})
	if text(r.Stdout) != "from a child\nend" || r.Background != 1 {
		t.Errorf("%q, %d in the background", text(r.Stdout), r.Background)
	}
}

// testBackgroundGoesOn checks that a background process survives although its output is no longer captured.
func testBackgroundGoesOn(t *testing.T, s *suite) {
	b := s.sandbox(t)
	const line = "(while [ ! -e go ]; do sleep 0.05; done; head -c 1000000 /dev/zero; echo still; touch alive) &"
	if r := b.run(env.Command{Line: line}); r.Background == 0 || r.Stdout.Size != 0 {
		t.Errorf("exit code %d, %d in the background, %d bytes of output", r.ExitCode, r.Background, r.Stdout.Size)
	}
	b.sh("touch go")
	eventually(t, "the background process continues after its shell", func() bool {
		return b.run(env.Command{Line: "test -e alive"}).ExitCode == 0
	})
}

func testZombies(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.sh("for i in 1 2 3 4 5 6 7 8; do (sleep 0.01 &) ; done; sleep 0.1")
	eventually(t, "orphans are reaped", func() bool {
		all := b.sh(`for f in /proc/[0-9]*/stat; do cat "$f"; done 2>/dev/null; true`)
		for line := range strings.Lines(all) {
			if f := strings.Fields(line[strings.LastIndexByte(line, ')')+1:]); f[0] == "Z" && strings.Contains(line, "(sleep)") {
				return false
			}
		}
		return true
	})
}

// bomb is a fork bomb that the calling shell can wait for or put in the background.
const bomb = "bomb() { bomb | bomb & }; bomb"

func testForkBomb(t *testing.T, s *suite) {
	needs(t, s.can.ProcessLimit, "a limit on processes")
	b := own(t, s.start(t, func(spec *env.Spec) { spec.Limits.Processes = 200 }))
	// One fork before the bomb starts and none after it: a shell that cannot fork would exit, and the timeout would
	// not be tested.
	r := b.run(env.Command{Line: bomb + " & exec sleep 100", Timeout: 2 * time.Second, Grace: 100 * time.Millisecond})
	if !r.TimedOut {
		t.Errorf("exit code %d, %s", r.ExitCode, text(r.Stderr))
	}
	b.ping()
	if r := b.run(env.Command{Line: "echo still here"}); text(r.Stdout) != "still here\n" || r.Background != 0 {
		t.Errorf("%+v, %q", r, text(r.Stderr))
	}
}

// testForkBombLeft runs a shell that exits at once and leaves a fork bomb behind; later commands must still work.
func testForkBombLeft(t *testing.T, s *suite) {
	needs(t, s.can.ProcessLimit, "a limit on processes")
	b := own(t, s.start(t, func(spec *env.Spec) { spec.Limits.Processes = 200 }))
	b.run(env.Command{Line: bomb, Timeout: 10 * time.Second})
	time.Sleep(500 * time.Millisecond)
	b.ping()
	b.write("file", "x")
	if got := b.read("file"); got != "x" {
		t.Errorf("read %q", got)
	}
	r := b.run(env.Command{Line: "echo still here", Timeout: 30 * time.Second})
	if text(r.Stdout) != "still here\n" {
		t.Errorf("%+v, %q", r, text(r.Stderr))
	}
}

func testOutOfMemory(t *testing.T, s *suite) {
	needs(t, s.can.MemoryLimit, "a limit on memory")
	b := own(t, s.start(t, func(spec *env.Spec) { spec.Limits.Memory = 128 << 20 }))
	if r := b.run(env.Command{Line: "true"}); r.OutOfMemory {
		t.Error("out of memory was reported without a reason")
	}
	// tail has to keep a last line that never ends.
	r, err := b.Run(t.Context(), env.Command{Line: "head -c 1000000000 /dev/zero | tail | wc -c", Timeout: time.Minute})
	if s.endedTogether(err) {
		return
	}
	if err != nil || !r.OutOfMemory {
		t.Errorf("the limit had no effect: %+v, %q, %q, %v", r, text(r.Stdout), text(r.Stderr), err)
	}
	b.ping() // the kernel must have killed the command, not the guest
	if r := b.run(env.Command{Line: "echo still here"}); text(r.Stdout) != "still here\n" || r.OutOfMemory {
		t.Errorf("%+v", r)
	}
}

// endedTogether reports whether a call failed because the kernel has ended the whole sandbox, where that may happen.
func (s *suite) endedTogether(err error) bool {
	return s.options.EndsTogether && errors.Is(err, env.ErrExhausted)
}

func testCloseKillsAll(t *testing.T, s *suite) {
	mark := marker()
	b := own(t, s.start(t))
	for name, line := range escapes(mark) {
		line = strings.NewReplacer("sleep 100", "true", "wait", "true").Replace(line)
		if strings.HasPrefix(name, "respawning") || name == "deep" {
			line = "(" + line + ") &"
		}
		b.run(env.Command{Line: line, Timeout: 20 * time.Second})
	}
	if n := b.running("sleep " + mark); n < 10 {
		r := b.run(env.Command{Line: "ps -ef || ps; ls /proc"})
		t.Fatalf("only %d are running:\n%s%s", n, text(r.Stdout), text(r.Stderr))
	}
	if !s.options.Remote && holding(t, mark) == 0 {
		t.Fatal("the processes cannot be seen from here; set Options.Remote")
	}
	b.close()
	s.killed(t, mark)
}
