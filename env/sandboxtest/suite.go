package sandboxtest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/testkit"
)

// Options adapt the suite to a provider. The zero value works for providers without images.
type Options struct {
	// Spec is the basis of every sandbox's spec, for example its image. Its Network must be false.
	Spec env.Spec
	// Remote is set if the sandboxes' processes are not visible in this machine's /proc.
	Remote bool
	// EndsTogether is set if the kernel may end the whole sandbox together with the command that has used up its
	// memory. Calls then have to fail with env.ErrExhausted.
	EndsTogether bool
	// Attacker is the path of a copy of the program that [Attacker] builds; if empty, it is built when needed.
	Attacker string
}

// secret is a variable of the host's environment that must never be visible in a sandbox.
const secret = "DEEPSWE_TEST_SECRET"

// Run checks a provider, which newProvider has to close in a clean-up function. The groups of cases run in
// parallel, as far as -parallel allows, because they mostly wait.
func Run(t *testing.T, newProvider func(t *testing.T) env.Provider, o Options) {
	if err := os.Setenv(secret, "not for sandboxes"); err != nil { // not unset: other suites may run at the same time
		t.Fatal(err)
	}
	all := suite{provider: newProvider(t), options: o, run: "sandboxtest-" + rand.Text()[:8]}
	all.can = all.provider.Capabilities()
	t.Cleanup(func() { all.nothingLeft(t, "") })
	for _, group := range []struct {
		name  string
		cases []testCase
	}{
		// The longest first.
		{"Lifecycle", lifecycleCases()}, {"Disk", diskCases()}, {"Isolation", isolationCases()}, {"Files", fileCases()},
		{"Trees", treeCases()}, {"Limits", limitCases()}, {"Unpack", unpackCases()}, {"Look", lookCases()},
		{"Commands", commandCases()},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			s := all // a copy: each group has its own shared sandbox
			s.group = group.name
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) { c.run(t, &s) })
			}
			s.closeShared(t)
		})
	}
}

type testCase struct {
	name string
	run  func(t *testing.T, s *suite)
}

type suite struct {
	provider env.Provider
	options  Options
	can      env.Capabilities
	run      string // marks this suite's sandboxes: others may use the same daemon
	group    string
	shared   env.Sandbox // the group's sandbox
}

// spec returns the spec of a case's sandbox.
func (s *suite) spec(t *testing.T, change ...func(*env.Spec)) env.Spec {
	spec := s.options.Spec
	spec.Run, spec.Rollout = s.run, t.Name()
	for _, f := range change {
		f(&spec)
	}
	return spec
}

// start starts a sandbox for one case and returns a bench in its repository.
func (s *suite) start(t *testing.T, change ...func(*env.Spec)) *bench {
	t.Helper()
	sandbox, err := s.provider.Start(t.Context(), s.spec(t, change...))
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	b := &bench{Sandbox: sandbox, t: t, dir: sandbox.Dir()}
	t.Cleanup(b.close)
	return b
}

// fail expects that a sandbox cannot be started, and returns the error.
func (s *suite) fail(ctx context.Context, t *testing.T, change ...func(*env.Spec)) error {
	t.Helper()
	sandbox, err := s.provider.Start(ctx, s.spec(t, change...))
	if err == nil {
		sandbox.Close(context.Background())
		t.Fatal("the start succeeded unexpectedly")
	}
	return err
}

// sandbox returns the sandbox that the group shares, with a new directory for the case. All cases of a group make the
// same changes to its spec.
func (s *suite) sandbox(t *testing.T, change ...func(*env.Spec)) *bench {
	t.Helper()
	if s.shared == nil {
		spec := s.spec(t, append(change, func(spec *env.Spec) { spec.Rollout = "shared by " + s.group })...)
		sandbox, err := s.provider.Start(context.WithoutCancel(t.Context()), spec)
		if err != nil {
			t.Fatalf("start: %v", err)
		}
		s.shared = sandbox
	}
	return own(t, s.shared)
}

func (s *suite) closeShared(t *testing.T) {
	t.Helper()
	if s.shared != nil {
		(&bench{Sandbox: s.shared, t: t}).close()
		s.shared = nil
	}
}

// needs skips a case unless the provider gives a guarantee.
func needs(t *testing.T, holds bool, promise string) {
	t.Helper()
	if !holds {
		t.Skipf("the provider does not guarantee %s here", promise)
	}
}

// nothingLeft checks that the provider reports no leftovers of a rollout of this process, or of any if rollout is
// empty.
func (s *suite) nothingLeft(t *testing.T, rollout string) {
	t.Helper()
	left, err := s.provider.Reap(context.Background(), env.ReapOptions{DryRun: true, All: true})
	if err != nil {
		t.Errorf("reap: %v", err)
	}
	for _, l := range left {
		if l.Run == s.run && (rollout == "" || l.Rollout == rollout) {
			t.Errorf("leftover: %s %s of %s", l.Kind, l.ID, l.Rollout)
		}
	}
}

// bench is a sandbox with a directory for one case.
type bench struct {
	env.Sandbox
	t   *testing.T
	dir string
}

// own creates a new directory in a sandbox.
func own(t *testing.T, sandbox env.Sandbox) *bench {
	t.Helper()
	b := &bench{Sandbox: sandbox, t: t, dir: sandbox.Dir() + "/" + rand.Text()[:8]}
	b.sh("mkdir " + b.dir)
	return b
}

// path returns the absolute path of a name in the case's directory; an absolute name is returned as it is.
func (b *bench) path(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return b.dir + "/" + name
}

func (b *bench) close() {
	b.t.Helper()
	if err := b.Close(context.Background()); err != nil {
		b.t.Errorf("close: %v", err)
	}
}

func (b *bench) ping() {
	b.t.Helper()
	if err := b.Ping(b.t.Context()); err != nil {
		b.t.Fatalf("the guest does not answer: %v", err)
	}
}

// alive checks that the guest answers, reads, writes and runs commands.
func (b *bench) alive() {
	b.t.Helper()
	b.ping()
	const name = ".alive"
	b.write(name, "x")
	if b.read(name) != "x" || b.sh("rm "+name+"; echo ok") != "ok\n" {
		b.t.Fatal("the guest does not work any more")
	}
}

// run runs a command line in the case's directory.
func (b *bench) run(c env.Command) env.Result {
	b.t.Helper()
	c.Dir = cmp.Or(c.Dir, b.dir)
	r, err := b.Run(b.t.Context(), c)
	if err != nil {
		b.t.Fatalf("run %.200q: %v", c.Line, err)
	}
	return r
}

// runAll runs command lines in the case's directory, all at once.
func (b *bench) runAll(commands ...env.Command) []env.Result {
	b.t.Helper()
	results, failures := make([]env.Result, len(commands)), make([]error, len(commands))
	var calls sync.WaitGroup
	for i, c := range commands {
		c.Dir = b.dir
		calls.Go(func() { results[i], failures[i] = b.Run(b.t.Context(), c) })
	}
	calls.Wait()
	if err := errors.Join(failures...); err != nil {
		b.t.Fatalf("run %d command lines: %v", len(commands), err)
	}
	return results
}

// sh runs a command line that must succeed, and returns its output.
func (b *bench) sh(line string) string {
	b.t.Helper()
	c := env.Command{Line: line, Timeout: time.Minute, Dir: "/"}
	if !strings.HasPrefix(line, "mkdir "+b.dir) {
		c.Dir = b.dir
	}
	r := b.run(c)
	if r.ExitCode != 0 {
		b.t.Fatalf("%s: exit code %d (%s): %s%s", line, r.ExitCode, r.Signal, text(r.Stdout), text(r.Stderr))
	}
	return text(r.Stdout)
}

// write writes a file in the case's directory.
func (b *bench) write(name, content string) {
	b.t.Helper()
	if err := b.put(name, content, env.WriteOptions{Parents: true}); err != nil {
		b.t.Fatalf("write %q: %v", name, err)
	}
}

func (b *bench) put(name, content string, o env.WriteOptions) error {
	_, err := b.Write(b.t.Context(), b.path(name), []byte(content), o)
	return err
}

func (b *bench) read(name string) string {
	b.t.Helper()
	data, _, err := b.Read(b.t.Context(), b.path(name), env.ReadOptions{})
	if err != nil {
		b.t.Fatalf("read %q: %v", name, err)
	}
	return string(data)
}

func text(o env.Output) string { return string(o.Head) + string(o.Tail) }

// eventually waits until a condition holds, for up to a minute.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Errorf("condition not met within a minute: %s", what)
}

// marker returns a duration for sleep that no other process uses, so that a process can be found by it. It starts
// differently from the suite's other sleeps, which some tests remove from a command line.
func marker() string {
	return fmt.Sprint(1_200_000_000 + time.Now().UnixNano()%800_000_000)
}

// holding counts the processes of this machine whose command line contains a text.
func holding(t *testing.T, text string) int {
	t.Helper()
	pids, err := disk.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, pid := range pids {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // the process may have ended
		if bytes.Contains(line, []byte(text)) {
			count++
		}
	}
	return count
}

// killed checks that no process of this machine has a marker, if the sandboxes' processes are visible here.
func (s *suite) killed(t *testing.T, mark string) {
	t.Helper()
	if n := holding(t, mark); !s.options.Remote && n != 0 {
		t.Errorf("%d processes survived", n)
	}
}

// Attacker returns the path of the program that does in a sandbox what a shell cannot do. It is built once per test
// run. A test is skipped if there is no go command.
func Attacker(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("building the attacking program needs the go command")
	}
	path, err := attacker()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var attacker = sync.OnceValues(func() (string, error) {
	return testkit.Build("deepswe/env/sandboxtest/testdata/attack")
})

// attack copies the attacking program into a sandbox.
func (s *suite) attack(b *bench) {
	b.t.Helper()
	path := s.options.Attacker
	if path == "" {
		path = Attacker(b.t)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.put("attack", string(program), env.WriteOptions{Mode: 0o755}); err != nil {
		b.t.Fatal(err)
	}
}
