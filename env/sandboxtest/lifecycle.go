package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/env/testkit"
)

func lifecycleCases() []testCase {
	return []testCase{
		{"Close", testClose},
		{"CloseUnderWork", testCloseUnderWork},
		{"CloseCancelled", testCloseCancelled},
		{"CloseNested", testCloseNested},
		{"StartCancelled", testStartCancelled},
		{"CopyIn", testCopyIn},
		{"CopyInMany", testCopyInMany},
		{"Commit", testCommit},
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

// testCloseUnderWork checks that closing ends the calls in progress with an error that says why.
func testCloseUnderWork(t *testing.T, s *suite) {
	b := own(t, s.start(t))
	mark := marker()
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			_, err := b.Run(t.Context(), env.Command{Line: "setsid sleep " + mark + " & trap '' TERM; sleep " + mark})
			errs <- err
		}()
	}
	eventually(t, "the commands run", func() bool { return b.running("sleep "+mark) >= 2*cap(errs) })
	b.close()
	for range cap(errs) {
		if err := <-errs; !errors.Is(err, env.ErrInfrastructure) {
			t.Errorf("a call in progress: %v", err)
		}
	}
	s.killed(t, mark)
}

// testCloseCancelled checks that a caller whose context has ended can close, and leaves nothing behind.
func testCloseCancelled(t *testing.T, s *suite) {
	sb := s.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sb.Close(ctx); err != nil {
		t.Error(err)
	}
	s.nothingLeft(t, t.Name())
}

// testCloseNested checks that a sandbox can be removed whose commands have left processes in deeply nested directories.
func testCloseNested(t *testing.T, s *suite) {
	b := own(t, s.start(t))
	mark := marker()
	b.sh("p=$(printf 'd/%.0s' $(seq 500)) && mkdir -p $p && cd $p && chmod 0 . && " +
		"{ (trap '' TERM; exec setsid sleep " + mark + ") >/dev/null 2>&1 & }")
	b.close()
	s.killed(t, mark)
	s.nothingLeft(t, t.Name())
}

func testStartCancelled(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.fail(ctx, t); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled start: %v", err)
	}
	for after := time.Millisecond; after < 100*time.Millisecond; after *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		if sb, err := s.provider.Start(ctx, s.spec(t)); err == nil {
			if err := sb.Close(context.Background()); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cancelled after %v: %v", after, err)
		}
		cancel()
	}
	s.nothingLeft(t, t.Name())
}

// repository creates a directory with everything that a copy could lose.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, content string, mode os.FileMode) {
		path := testkit.WriteFile(t, filepath.Join(dir, name), content)
		if err := errors.Join(os.Chmod(path, mode), os.Chtimes(path, time.Time{}, time.Unix(1_500_000_000, 0))); err != nil {
			t.Fatal(err)
		}
	}
	put("a.txt", "text\r\n", 0o644)
	put("bin/run", "#!/bin/sh\necho ran\n", 0o755)
	put("read only", "ro", 0o444)
	put(".git/HEAD", "ref: refs/heads/main\n", 0o644)
	put("new\nline \"quoted\" \xff", "x", 0o644)
	put("empty", "", 0o600)
	for link, to := range links() {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "nothing"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// links returns the symbolic links of a repository.
func links() map[string]string {
	return map[string]string{
		"link": "a.txt", "out": "/etc/hostname", "broken": "nowhere", "up": "../../../..", "dirlink": "bin",
	}
}

func testCopyIn(t *testing.T, s *suite) {
	source := repository(t)
	b := s.start(t, func(spec *env.Spec) { spec.CopyIn = source })
	for name, want := range map[string]string{
		"a.txt": "text\r\n", ".git/HEAD": "ref: refs/heads/main\n", "new\nline \"quoted\" \xff": "x", "empty": "",
	} {
		if got := b.read(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"a.txt": "644", "bin/run": "755", "read only": "444", "empty": "600"} {
		if got := b.sh("stat -c '%a %Y' '" + name + "'"); got != want+" 1500000000\n" {
			t.Errorf("%s: %s, want mode %s", name, got, want)
		}
	}
	for link, to := range links() {
		if got := b.sh("readlink " + link); got != to+"\n" {
			t.Errorf("%s leads to %q, want %q", link, got, to)
		}
	}
	if b.sh("./bin/run") != "ran\n" || b.sh("ls -A nothing") != "" {
		t.Error("the copied script does not run")
	}
	// All of it belongs to the command user, because tests and editors write everywhere.
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
	for i := range 300 {
		testkit.WriteFile(t, filepath.Join(source, fmt.Sprint("d", i%10), fmt.Sprint(i)), fmt.Sprint(i))
	}
	sb := s.start(t, func(spec *env.Spec) { spec.CopyIn = source })
	files, err := sb.Tree(t.Context(), sb.Dir(), env.TreeOptions{})
	if err != nil || len(files) < 300 {
		t.Errorf("%d files, %v", len(files), err)
	}
	sb.close()
	_ = s.fail(t.Context(), t, func(spec *env.Spec) { spec.CopyIn = filepath.Join(source, "nowhere") })
	s.nothingLeft(t, t.Name())
}

// testCommit copies a commit that is not the newest: neither its files nor its history know of what came later.
func testCommit(t *testing.T, s *suite) {
	source := t.TempDir()
	commit := ""
	for _, text := range []string{"first\n", "second\n", "third\n"} {
		testkit.WriteFile(t, filepath.Join(source, "a.txt"), text)
		for _, line := range []string{"git init -q .", "git add .", "git commit -qm '" + strings.TrimSpace(text) + "'"} {
			c := exec.CommandContext(t.Context(), "sh", "-c", line)
			c.Dir = source
			c.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@localhost", "GIT_COMMITTER_NAME=a",
				"GIT_COMMITTER_EMAIL=a@localhost")
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
		}
		if text == "second\n" {
			out, err := exec.CommandContext(t.Context(), "git", "-C", source, "rev-parse", "HEAD").Output()
			if err != nil {
				t.Fatal(err)
			}
			commit = strings.TrimSpace(string(out))
		}
	}
	b := s.start(t, func(spec *env.Spec) { spec.CopyIn, spec.Commit = source, commit })
	if got := b.read("a.txt"); got != "second\n" {
		t.Errorf("the file is %q", got)
	}
	if got := b.read(".git/shallow"); got != commit+"\n" {
		t.Errorf("the history begins with %q, want %s", got, commit)
	}
	b.sh("test -O a.txt && echo x >a.txt")
	err := s.fail(t.Context(), t, func(spec *env.Spec) { spec.CopyIn, spec.Commit = source, strings.Repeat("0", 40) })
	if !strings.Contains(err.Error(), "does not have this commit") {
		t.Errorf("an unknown commit: %v", err)
	}
}

func testPrepare(t *testing.T, s *suite) {
	b := s.start(t, func(spec *env.Spec) {
		spec.Prepare = []string{
			"echo one > prepared && pwd > where", "cat prepared && echo two >> prepared && chmod 666 prepared",
		}
	})
	if got := b.read("prepared"); got != "one\ntwo\n" {
		t.Errorf("prepared: %q", got)
	}
	if got := b.read("where"); got != b.Dir()+"\n" {
		t.Errorf("prepared in %q", got)
	}
	err := s.fail(t.Context(), t, func(spec *env.Spec) { spec.Prepare = []string{"echo the reason >&2; exit 7"} })
	if !strings.Contains(err.Error(), "the reason") || !strings.Contains(err.Error(), "7") {
		t.Errorf("the error does not say why: %v", err)
	}
	b.close()
	s.nothingLeft(t, t.Name())
}

func testEnvironment(t *testing.T, s *suite) {
	b := s.start(t, func(spec *env.Spec) { spec.Env = []string{"DEEPSWE_A=1 2=3", "DEEPSWE_B="} })
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

// testApart checks that two sandboxes do not see each other.
func testApart(t *testing.T, s *suite) {
	one, two := own(t, s.start(t)), own(t, s.start(t))
	mark := marker()
	one.run(env.Command{Line: "sleep " + mark + " >/dev/null 2>&1 & echo mine > here"})
	if s.can.Isolated {
		if n := two.running("sleep " + mark); n != 0 {
			t.Errorf("the other sandbox sees %d processes", n)
		}
		if _, _, err := two.Read(t.Context(), one.path("here"), env.ReadOptions{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the other sandbox's file: %v", err)
		}
	}
	one.close()
	if two.sh("echo ok") != "ok\n" {
		t.Error("closing one sandbox affected the other")
	}
}

func testMany(t *testing.T, s *suite) {
	const many = 8
	var work sync.WaitGroup
	for range many {
		work.Go(func() {
			sb, err := s.provider.Start(t.Context(), s.spec(t))
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
	s.nothingLeft(t, t.Name())
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
