package attempt_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/env/guest/inside"
	"deepswe/env/local"
	"deepswe/env/repo"
)

// scripted is a model that gives its replies one after another. After the last, then decides.
type scripted struct {
	replies []string
	then    func() error

	mu    sync.Mutex
	asked int
}

func (m *scripted) Complete(context.Context, agent.Request) (agent.Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked >= len(m.replies) {
		return agent.Reply{}, m.then()
	}
	m.asked++
	return agent.Reply{
		Message: agent.Message{Role: agent.RoleAssistant, Content: m.replies[m.asked-1]}, FinishReason: "stop",
		Usage: agent.Usage{Prompt: 10, Completion: 2},
	}, nil
}

func unavailable() error { return fmt.Errorf("%w: nobody is there", agent.ErrModelUnavailable) }

const (
	edit   = "<function=file_editor>\n<parameter=command>str_replace</parameter>\n<parameter=path>hello.txt</parameter>\n<parameter=old_str>goodbye</parameter>\n<parameter=new_str>hello</parameter>\n</function>"
	submit = "<function=finish>\n<parameter=command>submit</parameter>\n</function>"
)

var task = env.Task{ID: "greeter", Statement: "say hello"}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		os.Exit(inside.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// provider counts the sandboxes that are started and closed, and fails if told to.
type provider struct {
	env.Provider
	broken error  // of every start
	gone   error  // if set, of every command, as when the sandbox has ended
	dir    string // if set, the Dir of each sandbox, and a link to the repository of the one started last

	started, open atomic.Int32
}

func (p *provider) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	if p.broken != nil {
		return nil, fmt.Errorf("start a sandbox: %w", p.broken)
	}
	sb, err := p.Provider.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	p.started.Add(1)
	p.open.Add(1)
	c := &counted{Sandbox: sb, open: &p.open, dir: sb.Dir(), gone: p.gone}
	if p.dir != "" {
		_ = os.Remove(p.dir)
		if err := os.Symlink(sb.Dir(), p.dir); err != nil {
			return nil, errors.Join(err, c.Close(ctx))
		}
		c.dir = p.dir
	}
	return c, nil
}

// counted is a sandbox that counts as open until it is closed.
type counted struct {
	env.Sandbox
	dir  string
	gone error
	open *atomic.Int32
	once sync.Once
}

func (c *counted) Dir() string { return c.dir }

func (c *counted) Run(ctx context.Context, command env.Command) (env.Result, error) {
	if c.gone != nil {
		return env.Result{}, c.gone
	}
	return c.Sandbox.Run(ctx, command)
}

func (c *counted) Close(ctx context.Context) error {
	defer c.once.Do(func() { c.open.Add(-1) })
	return c.Sandbox.Close(ctx)
}

// setup returns an attempt at a repository with one file, whose sandboxes are in a temporary directory.
func setup(t *testing.T, m agent.Model) (*attempt.Attempt, *provider, *repo.Snapshot) {
	t.Helper()
	source := t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "hello.txt"), []byte("goodbye\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	snapshot, err := repo.Take(t.Context(), source, repo.Options{})
	if errors.Is(err, repo.ErrNoGit) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := snapshot.Close(); err != nil {
			t.Error(err)
		}
	})
	if runtime.GOOS != "linux" {
		t.Skip("sandboxes on the host need Linux")
	}
	host, err := local.NewHost(local.Options{Scratch: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	p := &provider{Provider: host}
	format, _ := agent.FormatNamed("xml")
	return &attempt.Attempt{
		Settings: agent.Settings{
			Model: m, ModelName: "scripted", Format: format, Log: slog.New(slog.DiscardHandler),
			Prompt: func(o agent.Opening) ([]agent.Message, error) {
				return []agent.Message{{Role: agent.RoleUser, Content: o.Issue.Statement + " in " + o.Dir}}, nil
			},
		},
		Provider: p, Version: "test", Run: "run",
	}, p, snapshot
}

func written(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// However an attempt ends, the agent's work is on disk, the report says how it ended, and no sandbox is left.
func TestEveryWayOut(t *testing.T) {
	t.Parallel()
	everything := []string{attempt.PatchFile, attempt.ReportFile, attempt.StepsFile, attempt.TrajectoryFile}
	for name, c := range map[string]struct {
		replies []string
		stop    agent.StopReason
		limits  agent.Limits
		files   []string // that the patch is about
		wrote   []string
	}{
		"submitted": {replies: []string{edit, submit}, stop: agent.Submitted, files: []string{"hello.txt"},
			wrote: everything},
		"nothing changed": {replies: []string{submit}, stop: agent.Submitted,
			wrote: slices.Delete(slices.Clone(everything), 0, 1)},
		"out of steps": {replies: []string{edit}, stop: agent.MaxSteps, limits: agent.Limits{Steps: 1},
			files: []string{"hello.txt"}, wrote: everything},
		"the endpoint fails": {replies: []string{edit}, stop: agent.ModelError, files: []string{"hello.txt"},
			wrote: everything},
		"it fails at once": {stop: agent.ModelError, wrote: slices.Delete(slices.Clone(everything), 0, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			a, provider, source := setup(t, &scripted{replies: c.replies, then: unavailable})
			a.Limits = c.limits
			dir := filepath.Join(t.TempDir(), "new", "attempt")
			var phases []attempt.Phase
			a.OnPhase = func(p attempt.Phase) { phases = append(phases, p) }
			result, err := a.Make(t.Context(), task, source, dir)
			if err != nil {
				t.Fatal(err)
			}
			if result.Outcome.StopReason != c.stop || result.Err != nil || result.PatchErr != nil {
				t.Errorf("it stopped by %s (%v, %v), want %s", result.Outcome.StopReason, result.Err, result.PatchErr, c.stop)
			}
			if diff := cmp.Diff(c.wrote, written(t, dir)); diff != "" {
				t.Errorf("files (-want +got)\n%s", diff)
			}
			report, err := attempt.ReadSummary(dir)
			if err != nil {
				t.Fatal(err)
			}
			if report.StopReason != c.stop || report.Task != "greeter" || report.Sandbox != "host" ||
				report.Steps != len(c.replies) ||
				!slices.Equal(report.Files, c.files) || (report.Patch != "") != (c.files != nil) {
				t.Errorf("the report says %+v", report)
			}
			if open := provider.open.Load(); open != 0 {
				t.Errorf("%d sandboxes are left", open)
			}
			if want := []attempt.Phase{attempt.PhaseSandbox, attempt.PhaseAgent, attempt.PhasePatch}; !slices.Equal(phases,
				want) {
				t.Errorf("phases %v, want %v", phases, want)
			}
		})
	}
}

// A sandbox that does not start is an infrastructure failure, and the report says so.
func TestSandboxDoesNotStart(t *testing.T) {
	t.Parallel()
	a, provider, source := setup(t, &scripted{then: unavailable})
	broken := fmt.Errorf("%w: no disk", env.ErrInfrastructure)
	provider.broken = broken
	dir := t.TempDir()
	result, err := a.Make(t.Context(), task, source, dir)
	if err != nil || !errors.Is(result.Err, broken) || result.Outcome.StopReason != agent.SandboxError {
		t.Errorf("result %+v, %v", result, err)
	}
	if report, err := attempt.ReadSummary(dir); err != nil || report.StopReason != agent.SandboxError ||
		!strings.Contains(report.Error, "no disk") {
		t.Errorf("the report says %+v (%v)", report, err)
	}
}

// Commands that use up the sandbox's memory end the sandbox. The rollout then ends without a patch and is not tried
// again.
func TestSandboxExhausted(t *testing.T) {
	t.Parallel()
	const fill = "<function=execute_bash>\n<parameter=cmd>fill</parameter>\n</function>"
	a, provider, source := setup(t, &scripted{replies: []string{edit, fill}, then: unavailable})
	provider.gone = fmt.Errorf("%w: %w", env.ErrInfrastructure, env.ErrExhausted)
	dir := t.TempDir()
	result, err := a.Make(t.Context(), task, source, dir)
	if err != nil || result.Err != nil || result.PatchErr != nil || len(result.Patch.Diff) > 0 ||
		result.Outcome.StopReason != agent.Exhausted {
		t.Errorf("stopped by %s, %v, %v, %v", result.Outcome.StopReason, result.Err, result.PatchErr, err)
	}
	report, err := attempt.ReadSummary(dir)
	if err != nil || report.StopReason != agent.Exhausted || report.Error != "" || report.PatchError != "" {
		t.Errorf("the report says %+v (%v)", report, err)
	}
}

// An interrupt stops the agent, but the patch is still computed. A second interrupt stops that as well.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for name, abandoned := range map[string]bool{"once": false, "twice": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			abandon := make(chan struct{})
			a, provider, source := setup(t, &scripted{replies: []string{edit}, then: func() error {
				cancel()
				return ctx.Err()
			}})
			a.Abandon = abandon
			if abandoned {
				close(abandon)
			}
			dir := t.TempDir()
			result, err := a.Make(ctx, task, source, dir)
			if err != nil || result.Err != nil || result.Outcome.StopReason != agent.Interrupted {
				t.Errorf("stopped by %s, %v, %v", result.Outcome.StopReason, result.Err, err)
			}
			if abandoned && !errors.Is(result.PatchErr, context.Canceled) {
				t.Errorf("the patch's error is %v, want a cancel", result.PatchErr)
			}
			if _, err := os.Stat(filepath.Join(dir, attempt.PatchFile)); (err == nil) == abandoned {
				t.Errorf("the patch: %v", err)
			}
			if provider.open.Load() != 0 {
				t.Error("the sandbox is left")
			}
		})
	}
}

// A killed attempt is resumed from its event log: its calls are replayed, and the model is asked only for what is
// missing. A patch of an earlier try is removed.
func TestKilledAttemptGoesOn(t *testing.T) {
	t.Parallel()
	a, provider, source := setup(t, &scripted{replies: []string{edit}, then: unavailable})
	provider.dir = filepath.Join(t.TempDir(), "repo") // the same path in every sandbox: the conversation names it
	dir := t.TempDir()
	if _, err := a.Make(t.Context(), task, source, dir); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(dir, attempt.StepsFile))
	if err != nil {
		t.Fatal(err)
	}
	// The process was killed before it could write how the attempt ended, and in the middle of a line.
	lines := strings.SplitAfter(strings.TrimSpace(string(log)), "\n")
	half := strings.Join(lines[:len(lines)-1], "") + lines[len(lines)-1][:10]
	if err := os.WriteFile(filepath.Join(dir, attempt.StepsFile), []byte(half), 0o644); err != nil {
		t.Fatal(err)
	}
	model := &scripted{replies: []string{submit}, then: unavailable}
	a.Model = model
	result, err := a.Make(t.Context(), task, source, dir)
	if err != nil {
		t.Fatal(err)
	}
	if result.Outcome.StopReason != agent.Submitted || result.Outcome.Steps != 2 || model.asked != 1 ||
		!slices.Equal(result.Patch.Files, []string{"hello.txt"}) {
		t.Errorf("stopped by %s (%v) after %d steps, of which %d were new, with a patch of %v", result.Outcome.StopReason,
			result.Err,
			result.Outcome.Steps, model.asked, result.Patch.Files)
	}
	rec, err := trajectory.Open(filepath.Join(dir, attempt.TrajectoryFile))
	if err != nil || len(rec.Turns) != 2 {
		t.Errorf("the trajectory has not both steps: %v", err)
	}

	// Another try changes nothing.
	if err := os.Remove(filepath.Join(dir, attempt.StepsFile)); err != nil {
		t.Fatal(err)
	}
	a.Model = &scripted{replies: []string{submit}, then: unavailable}
	if _, err := a.Make(t.Context(), task, source, dir); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(written(t, dir), attempt.PatchFile) {
		t.Error("the patch of an earlier try is still there")
	}
}

// One attempt can be copied and made many times at once.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	a, provider, source := setup(t, nil)
	var wg sync.WaitGroup
	for n := range 8 {
		one := *a
		one.Model = &scripted{replies: []string{edit, submit}, then: unavailable}
		wg.Go(func() {
			result, err := one.Make(t.Context(), task, source, filepath.Join(t.TempDir(), fmt.Sprint(n)))
			if err != nil || result.Err != nil || len(result.Patch.Files) != 1 {
				t.Errorf("%d: %v, %v, %v", n, err, result.Err, result.Patch.Files)
			}
		})
	}
	wg.Wait()
	if provider.open.Load() != 0 || provider.started.Load() != 8 {
		t.Errorf("%d sandboxes were started, %d are left", provider.started.Load(), provider.open.Load())
	}
}

func TestReadSummaryTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := attempt.ReadSummary(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no report: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, attempt.ReportFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := attempt.ReadSummary(dir); err == nil || !strings.Contains(err.Error(), attempt.ReportFile) {
		t.Errorf("half a report: %v", err)
	}
}
