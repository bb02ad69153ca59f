package rlcmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
)

const tinyRun = `
name: tiny
steps: 3
environment: {name: frozenlake, max_size: 3, radius: 2, max_tokens: 2, validation_tasks: 4}
trainer: {name: embedded, hidden: 4}
rollouts: {tasks: 2, group: 2}
evaluate: {every: 2}
`

// deps are for a machine without a home directory, with one bundled configuration.
func deps(in io.Reader, out, errOut io.Writer) Deps {
	screen := cli.NewScreen(errOut)
	return Deps{
		World:   cli.World{In: in, Out: out, Err: screen, Log: cli.NewLog(screen), Getenv: func(string) string { return "" }},
		Configs: fstest.MapFS{"tiny.yaml": {Data: []byte(tinyRun)}},
	}
}

// runTrain runs the command and returns what it wrote.
func runTrain(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	c := newTrain(deps(strings.NewReader(tinyRun), &out, &errOut))
	c.SetArgs(args)
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	err = c.ExecuteContext(ctx)
	return out.String(), errOut.String(), err
}

func writeConfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.yaml")
	if err := os.WriteFile(path, []byte(tinyRun), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTrain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	out, errOut, err := runTrain(t.Context(), "--config", writeConfig(t), "--out", dir)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^tiny: 3 steps, validation pass@1 [01]\.\d{3} \[[^]]+\], random moves 0\.\d{3}\nreport: .*report.html\n$`).MatchString(out) {
		t.Errorf("stdout %q", out)
	}
	for _, want := range []string{"step 0/3", "step 3/3"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("stderr does not say %q:\n%s", want, errOut)
		}
	}
	for _, name := range []string{"report.html", "metrics.jsonl", "config.yaml", "manifest.json", "tensorboard",
		"checkpoints/step-000003.policy"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	// A resumed run can be longer, and keeps the rest of its configuration.
	if out, _, err = runTrain(t.Context(), "--resume", "--out", dir, "--set", "steps=4"); err != nil ||
		!strings.HasPrefix(out, "tiny: 4 steps") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestTrainReadsStdin(t *testing.T) {
	if out, _, err := runTrain(t.Context(), "--config", "-", "--out", filepath.Join(t.TempDir(), "run")); err != nil ||
		!strings.HasPrefix(out, "tiny: 3 steps") {
		t.Errorf("%q, %v", out, err)
	}
}

// A bundled name takes precedence over a file or directory of that name, and the message says so. ./NAME is the file.
func TestTrainBundled(t *testing.T) {
	t.Chdir(t.TempDir())
	dryRun := func(name string) (steps int, stderr string) {
		t.Helper()
		out, errOut, err := runTrain(t.Context(), "--config", name, "--dry-run")
		if err != nil {
			t.Fatal(err)
		}
		c, err := config.Load([]byte(out), builtin.Parts())
		if err != nil {
			t.Fatal(err)
		}
		return c.Steps, errOut
	}
	if steps, errOut := dryRun("tiny"); steps != 3 || errOut != "" {
		t.Errorf("the bundled one has %d steps, stderr %q", steps, errOut)
	}
	if err := os.WriteFile("tiny", []byte(strings.Replace(tinyRun, "steps: 3", "steps: 7", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if steps, errOut := dryRun("tiny"); steps != 3 || !strings.Contains(errOut, "--config ./tiny") {
		t.Errorf("beside a file: %d steps, stderr %q", steps, errOut)
	}
	if steps, errOut := dryRun("./tiny"); steps != 7 || errOut != "" {
		t.Errorf("the file has %d steps, stderr %q", steps, errOut)
	}
	if err := os.Rename("tiny", "mine"); err != nil {
		t.Fatal(err)
	}
	if steps, errOut := dryRun("mine"); steps != 7 || errOut != "" {
		t.Errorf("a file without extension has %d steps, stderr %q", steps, errOut)
	}
	if err := os.Mkdir("tiny", 0o755); err != nil {
		t.Fatal(err)
	}
	if steps, errOut := dryRun("tiny"); steps != 3 || !strings.Contains(errOut, "--config ./tiny") {
		t.Errorf("beside a directory: %d steps, stderr %q", steps, errOut)
	}
}

func TestTrainDryRun(t *testing.T) {
	t.Chdir(t.TempDir())
	out, _, err := runTrain(t.Context(), "--config", writeConfig(t), "--set", "filter.timeout=drop", "--dry-run")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load([]byte(out), builtin.Parts())
	if err != nil || c.Steps != 3 || !strings.Contains(out, "filter.timeout: drop") ||
		!strings.Contains(out, "clip.high: \"0.28\"") {
		t.Errorf("%v\n%s", err, out)
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("a dry run left %v, %v", entries, err)
	}
}

func TestTrainJSON(t *testing.T) {
	out, _, err := runTrain(t.Context(), "--config", writeConfig(t), "--out", filepath.Join(t.TempDir(), "run"), "--json")
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	in := bufio.NewScanner(strings.NewReader(out))
	for in.Scan() {
		var e struct {
			Version int
			Event   string
			Run     string
			Step    *int
			Dir     string
			Metrics map[string]float64
		}
		d := json.NewDecoder(strings.NewReader(in.Text()))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil || e.Version != 1 || e.Run != "tiny" || len(e.Metrics) == 0 {
			t.Errorf("%s: %v", in.Text(), err)
		}
		if (e.Event == "step") != (e.Step != nil) || (e.Event == "done") != (e.Dir != "") {
			t.Errorf("%s", in.Text())
		}
		events = append(events, e.Event)
	}
	if got := strings.Join(events, " "); got != "step step step step done" {
		t.Errorf("events %s", got)
	}
}

func TestTrainUsage(t *testing.T) {
	config := writeConfig(t)
	begun := filepath.Join(t.TempDir(), "begun")
	if _, _, err := runTrain(t.Context(), "--config", config, "--out", begun, "--set", "steps=1"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "--config is missing (bundled: tiny)"},
		{[]string{"x.yaml"}, `"x.yaml" meant for --config?`},
		{[]string{"--config", "nowhere.yaml"}, "open nowhere.yaml: no such file or directory"},
		{[]string{"--config", "nowhere"}, "no bundled configuration has that name (bundled: tiny)"},
		{[]string{"--config", "tiny.yaml"}, "open tiny.yaml: no such file or directory"},
		{[]string{"--resume"}, "--resume requires --out"},
		{[]string{"--config", config, "--set", "stepps=1"}, "stepps"},
		{[]string{"--config", config, "--out", begun}, "continue it with --resume"},
		{[]string{"--config", config, "--out", begun, "--resume", "--set", "seed=9"}, "seed cannot change"},
		{[]string{"--out", begun, "--resume", "--set", "seed=9"}, "leave out the --set that changes it"},
		{[]string{"--config", config, "--out", filepath.Join(begun, "no"), "--resume"}, "no run"},
		{[]string{"--config", config, "--out", begun, "--metrics-addr", "nowhere:x"}, "--metrics-addr"},
	} {
		_, _, err := runTrain(t.Context(), tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
			continue
		}
		if code := cli.ExitCode(err); code != cli.ExitUsage {
			t.Errorf("%q: %v has the exit code %d", tt.args, err, code)
		}
	}
}

func TestTrainInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, errOut, err := runTrain(ctx, "--config", writeConfig(t), "--out", dir)
	if !errors.Is(err, run.ErrInterrupted) || !errors.Is(err, context.Canceled) ||
		!strings.Contains(errOut, "deepswe train --resume --out "+dir) {
		t.Errorf("%v; stderr %q", err, errOut)
	}
	if out, _, err := runTrain(t.Context(), "--resume", "--out", dir); err != nil ||
		!strings.HasPrefix(out, "tiny: 3 steps") {
		t.Errorf("%q, %v", out, err)
	}
}

// A run that fails says how to resume it.
func TestTrainFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if _, _, err := runTrain(t.Context(), "--config", writeConfig(t), "--out", dir); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(dir, "steps")
	if err := errors.Join(os.RemoveAll(kept), os.WriteFile(kept, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	_, errOut, err := runTrain(t.Context(), "--resume", "--out", dir, "--set", "steps=5")
	if err == nil || !strings.Contains(errOut, "go on with: deepswe train --resume --out "+dir) {
		t.Errorf("%v; stderr %q", err, errOut)
	}
}

// signals is a buffer that signals each write.
type signals struct {
	mu    sync.Mutex
	b     bytes.Buffer
	wrote chan struct{}
}

func (s *signals) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.wrote <- struct{}{}:
	default:
	}
	return s.b.Write(p)
}

func (s *signals) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestTrainServesMetrics(t *testing.T) {
	errOut := &signals{wrote: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		c := newTrain(deps(nil, io.Discard, errOut))
		c.SilenceUsage, c.SilenceErrors = true, true
		c.SetArgs([]string{"--config", writeConfig(t), "--out", filepath.Join(t.TempDir(), "run"), "--metrics-addr",
			"127.0.0.1:0", "--set", "steps=1000000"})
		if err := c.ExecuteContext(ctx); !errors.Is(err, run.ErrInterrupted) {
			t.Error(err)
		}
	})
	defer wg.Wait()
	defer cancel()
	for !strings.Contains(errOut.String(), "step 2/") {
		select {
		case <-errOut.wrote:
		case <-ctx.Done():
			t.Fatalf("stderr %q", errOut)
		}
	}
	address := regexp.MustCompile(`http://[^/]+/`).FindString(errOut.String())
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string) string {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	if page := get("metrics"); !strings.Contains(page, `deepswe_train_reward_mean{run="tiny"}`) {
		t.Errorf("metrics: %.300s", page)
	}
	// The report is written some time after the step, so wait for it.
	for page := get(""); !strings.Contains(page, "<title>tiny</title>"); page = get("") {
		select {
		case <-errOut.wrote:
		case <-ctx.Done():
			t.Fatalf("report: %.300s", page)
		}
	}
}
