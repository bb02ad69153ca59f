package sandboxtest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
)

func lifecycleCases() []testCase {
	return []testCase{
		{"Close", testClose},
		{"CloseUnderWork", testCloseUnderWork},
		{"CloseCancelled", testCloseCancelled},
		{"StartCancelled", testStartCancelled},
		{"CopyIn", testCopyIn},
		{"CopyInMany", testCopyInMany},
		{"Prepare", testPrepare},
		{"Environment", testEnvironment},
		{"Refused", testStartRefused},
		{"Apart", testApart},
		{"Many", testMany},
		{"ReapSparesTheLiving", testReapSparesTheLiving},
	}
}

// everyCall makes each of a sandbox's calls once, and returns the errors by name.
func everyCall(ctx context.Context, sb env.Sandbox) map[string]error {
	errs := map[string]error{}
	_, errs["run"] = sb.Run(ctx, env.Command{Line: "true"})
	_, _, errs["read"] = sb.Read(ctx, "/etc/hostname", env.ReadOptions{})
	_, errs["write"] = sb.Write(ctx, "x", []byte("x"), env.WriteOptions{})
	_, errs["list"] = sb.List(ctx, "", env.ListOptions{})
	_, errs["search"] = sb.Search(ctx, env.Query{Term: "x"})
	_, errs["tree"] = sb.Tree(ctx, "", env.TreeOptions{})
	errs["unpack"] = sb.Unpack(ctx, "", strings.NewReader(""))
	errs["ping"] = sb.Ping(ctx)
	return errs
}

func testClose(t *testing.T, s *suite) {
	sb := s.start(t)
	dir := sb.Dir()
	var closers sync.WaitGroup
	for range 4 {
		closers.Go(func() {
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	closers.Wait()
	if err := sb.Close(t.Context()); err != nil {
		t.Errorf("once more: %v", err)
	}
	for name, err := range everyCall(t.Context(), sb) {
		if !errors.Is(err, env.ErrInfrastructure) || !errors.Is(err, guest.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	if sb.Dir() != dir {
		t.Errorf("the directory was %s and is %s", dir, sb.Dir())
	}
}

// testCloseUnderWork: calls that are under way end, with the error that says why.
func testCloseUnderWork(t *testing.T, s *suite) {
	b := s.bench(t, s.start(t))
	mark := marker()
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			_, err := b.Run(t.Context(), env.Command{Line: "setsid sleep " + mark + " & trap '' TERM; sleep " + mark})
			errs <- err
		}()
	}
	eventually(t, "the commands run", func() bool { return b.running("sleep "+mark) >= 2*cap(errs) })
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for range cap(errs) {
		if err := <-errs; !gone(err) {
			t.Errorf("a call under way: %v", err)
		}
	}
	if !s.options.Remote && holding(t, mark) != 0 {
		t.Errorf("%d processes have survived", holding(t, mark))
	}
}

// testCloseCancelled: an interrupted caller closes with a context that is done, and still leaves nothing.
func testCloseCancelled(t *testing.T, s *suite) {
	sb := s.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sb.Close(ctx); err != nil {
		t.Error(err)
	}
	s.noneOf(t, t.Name())
}

func (s *suite) noneOf(t *testing.T, rollout string) {
	t.Helper()
	left, err := s.provider.Reap(context.Background(), env.ReapOptions{DryRun: true, All: true})
	if err != nil {
		t.Error(err)
	}
	for _, l := range left {
		if l.Run == s.run && l.Rollout == rollout {
			t.Errorf("left over: %s %s", l.Kind, l.ID)
		}
	}
}

func testStartCancelled(t *testing.T, s *suite) {
	spec := s.options.Spec
	spec.Run, spec.Rollout = s.run, t.Name()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if sb, err := s.provider.Start(ctx, spec); err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("a start that was called off: %v", err)
		if err == nil {
			sb.Close(context.Background())
		}
	}
	for _, after := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond,
		80 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		if sb, err := s.provider.Start(ctx, spec); err == nil {
			err = sb.Close(context.Background())
			if err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("called off after %v: %v", after, err)
		}
		cancel()
	}
	s.noneOf(t, t.Name())
}

// repository makes a directory with everything that a copy can lose.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, content string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(1_500_000_000, 0)); err != nil {
			t.Fatal(err)
		}
	}
	put("a.txt", "text\r\n", 0o644)
	put("bin/run", "#!/bin/sh\necho ran\n", 0o755)
	put("read only", "ro", 0o444)
	put(".git/HEAD", "ref: refs/heads/main\n", 0o644)
	put("new\nline \"quoted\" \xff", "x", 0o644)
	put("empty", "", 0o600)
	for link, to := range map[string]string{"link": "a.txt", "out": "/etc/hostname", "broken": "nowhere",
		"up": "../../../..", "dirlink": "bin"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "nothing"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func testCopyIn(t *testing.T, s *suite) {
	source := repository(t)
	sb := s.start(t, func(spec *env.Spec) { spec.CopyIn = source })
	b := &bench{Sandbox: sb, t: t, dir: sb.Dir()}
	for name, want := range map[string]string{"a.txt": "text\r\n", ".git/HEAD": "ref: refs/heads/main\n",
		"new\nline \"quoted\" \xff": "x", "empty": ""} {
		if got := b.read(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"a.txt": "644", "bin/run": "755", "read only": "444", "empty": "600"} {
		if got := b.sh("stat -c '%a %Y' '" + name + "'"); got != want+" 1500000000\n" {
			t.Errorf("%s: %s, want mode %s", name, got, want)
		}
	}
	for link, to := range map[string]string{"link": "a.txt", "out": "/etc/hostname", "broken": "nowhere",
		"up": "../../../..", "dirlink": "bin"} {
		if got := b.sh("readlink " + link); got != to+"\n" {
			t.Errorf("%s leads to %q, want %q", link, got, to)
		}
	}
	if b.sh("./bin/run") != "ran\n" || b.sh("ls -A nothing") != "" {
		t.Error("the copy does not work")
	}
	// All of it is the command user's: tests and editors write everywhere.
	b.sh("test -O . && test -O a.txt && test -O bin && test -O 'read only' && touch new bin/new && " +
		"rm -r .git bin nothing && echo x > a.txt")
	data, err := os.ReadFile(filepath.Join(source, "a.txt"))
	if err != nil || string(data) != "text\r\n" {
		t.Errorf("the source has %q, %v", data, err)
	}
	if _, err := os.Stat(filepath.Join(source, ".git/HEAD")); err != nil {
		t.Error(err)
	}
}

func testCopyInMany(t *testing.T, s *suite) {
	source := t.TempDir()
	for d := range 10 {
		dir := filepath.Join(source, string(rune('a'+d)))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for f := range 100 {
			name := filepath.Join(dir, string(rune('a'+f%26))+string(rune('a'+f/26)))
			if err := os.WriteFile(name, []byte{byte(d), byte(f)}, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	sb := s.start(t, func(spec *env.Spec) { spec.CopyIn = source })
	files, err := sb.Tree(t.Context(), sb.Dir(), env.TreeOptions{})
	if err != nil || len(files) < 1000 {
		t.Errorf("%d files, %v", len(files), err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	spec := s.options.Spec
	spec.Run, spec.Rollout, spec.CopyIn = s.run, t.Name(), filepath.Join(source, "nowhere")
	if sb, err := s.provider.Start(t.Context(), spec); err == nil {
		sb.Close(context.Background())
		t.Error("a source that is not there was copied")
	}
	s.noneOf(t, t.Name())
}

func testPrepare(t *testing.T, s *suite) {
	sb := s.start(t, func(spec *env.Spec) {
		spec.Prepare = []string{"echo one > prepared && pwd > where",
			"cat prepared && echo two >> prepared && chmod 666 prepared"}
	})
	b := &bench{Sandbox: sb, t: t, dir: sb.Dir()}
	if got := b.read("prepared"); got != "one\ntwo\n" {
		t.Errorf("prepared: %q", got)
	}
	if got := b.read("where"); got != sb.Dir()+"\n" {
		t.Errorf("prepared in %q", got)
	}
	spec := s.options.Spec
	spec.Run, spec.Rollout = s.run, t.Name()
	spec.Prepare = []string{"echo the reason >&2; exit 7"}
	failed, err := s.provider.Start(t.Context(), spec)
	if err == nil {
		failed.Close(context.Background())
		t.Fatal("a sandbox that could not be prepared has started")
	}
	if !strings.Contains(err.Error(), "the reason") || !strings.Contains(err.Error(), "7") {
		t.Errorf("the error does not say why: %v", err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	s.noneOf(t, t.Name())
}

func testEnvironment(t *testing.T, s *suite) {
	sb := s.start(t, func(spec *env.Spec) { spec.Env = []string{"DEEPSWE_A=1 2=3", "DEEPSWE_B="} })
	b := &bench{Sandbox: sb, t: t, dir: sb.Dir()}
	if got := b.sh(`printf '%s|%s|%s' "$DEEPSWE_A" "${DEEPSWE_B-unset}" "${DEEPSWE_C-unset}"`); got != "1 2=3||unset" {
		t.Errorf("%q", got)
	}
	if r := b.run(env.Command{Line: `printf %s "$DEEPSWE_A"`, Env: []string{"DEEPSWE_A=mine"}}); text(r.Stdout) != "mine" {
		t.Errorf("%q", text(r.Stdout))
	}
}

func testStartRefused(t *testing.T, s *suite) {
	if s.can.Images {
		t.Skip("the provider takes images")
	}
	if _, err := s.provider.Start(t.Context(), env.Spec{Image: "some/image:tag"}); !errors.Is(err, env.ErrUnsupported) {
		t.Errorf("an image: %v", err)
	}
}

// testApart: two sandboxes do not see each other.
func testApart(t *testing.T, s *suite) {
	one, two := s.bench(t, s.start(t)), s.bench(t, s.start(t))
	mark := marker()
	one.run(env.Command{Line: "sleep " + mark + " >/dev/null 2>&1 & echo mine > here"})
	if s.can.Isolated {
		if n := two.running("sleep " + mark); n != 0 {
			t.Errorf("a neighbour sees %d processes", n)
		}
		if _, _, err := two.Read(t.Context(), one.path("here"), env.ReadOptions{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a neighbour's file: %v", err)
		}
	}
	if err := one.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if two.sh("echo ok") != "ok\n" {
		t.Error("a neighbour's end was felt")
	}
}

func testMany(t *testing.T, s *suite) {
	const many = 8
	var work sync.WaitGroup
	for range many {
		work.Go(func() {
			spec := s.options.Spec
			spec.Run, spec.Rollout = s.run, t.Name()
			sb, err := s.provider.Start(t.Context(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			for range 20 {
				r, err := sb.Run(t.Context(), env.Command{Line: "echo $$"})
				if err != nil || r.ExitCode != 0 {
					t.Errorf("%+v, %v", r, err)
				}
			}
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	s.noneOf(t, t.Name())
}

func testReapSparesTheLiving(t *testing.T, s *suite) {
	sb := s.start(t)
	if _, err := s.provider.Reap(t.Context(), env.ReapOptions{}); err != nil {
		t.Error(err)
	}
	if err := sb.Ping(t.Context()); err != nil {
		t.Errorf("a living sandbox was reaped: %v", err)
	}
	left, err := s.provider.Reap(t.Context(), env.ReapOptions{DryRun: true, All: true})
	if err != nil {
		t.Error(err)
	}
	seen := false
	for _, l := range left {
		seen = seen || l.Rollout == t.Name() && l.Run == s.run && l.Provider == s.provider.Name()
	}
	if !seen {
		t.Errorf("asked for all, it does not name the living one: %+v", left)
	}
	if err := sb.Ping(t.Context()); err != nil {
		t.Errorf("a dry run has removed something: %v", err)
	}
}
