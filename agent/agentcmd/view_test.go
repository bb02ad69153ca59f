package agentcmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/env/testkit"
)

// view shows a run of solve, one of its attempts, or a single file.
func TestView(t *testing.T) {
	long := "<function=execute_bash>\n<parameter=cmd>seq 100; printf '\\033[2Jwiped\\r\\n'</parameter>\n</function>"
	w := newWorld(t, sayHello, "No call here.", long, submit)
	own, run := repository(t), filepath.Join(t.TempDir(), "run")
	if code := w.run(t, "solve", "--env", "host", "--format", "xml", "--repo", own, "--out", run,
		"Say hello & not <goodbye>"); code != cli.ExitDone {
		t.Fatalf("exit code %d\n%s", code, &w.err)
	}
	attempt := filepath.Join(run, "rollouts", "greeter", "0")
	view := func(want int, args ...string) string {
		t.Helper()
		if code := w.run(t, append([]string{"view"}, args...)...); code != want {
			t.Errorf("view %v: exit code %d, want %d: %s", args, code, want, &w.err)
		}
		return w.out.String() + w.err.String()
	}
	whole := view(cli.ExitDone, run)
	if !strings.HasPrefix(whole, "greeter  scripted, format xml, 4 steps\n") || strings.Contains(whole, "\x1b") {
		t.Errorf("view shows\n%s", whole)
	}
	for _, want := range []string{
		"\nsystem\n", "  Say hello & not <goodbye>", "\nstep 1  100 tokens read, 10 written\n  <function=execute_bash>\n",
		"\nobservation\n",
		"more lines (--full)\n", "\nend submitted\n", "\npatch\ndiff --git a/hello.txt b/hello.txt\n",
	} {
		if !strings.Contains(whole, want) {
			t.Errorf("view does not show %q:\n%s", want, whole)
		}
	}
	if got := view(cli.ExitDone, attempt); got != whole {
		t.Error("an attempt alone is not shown like the run that holds it")
	}
	if got := view(cli.ExitDone, "--step", "3", "--full", attempt); !strings.Contains(got, "  100\n  ") ||
		strings.Contains(got, "step 2") || strings.Contains(got, "patch") {
		t.Errorf("one step is shown as\n%s", got)
	}
	for _, file := range []string{"steps.jsonl", "trajectory.json"} {
		if got := view(cli.ExitDone, filepath.Join(attempt, file)); !strings.Contains(got, "end submitted") {
			t.Errorf("%s is shown as\n%s", file, got)
		}
	}

	if err := os.CopyFS(filepath.Join(run, "rollouts", "other", "0"), os.DirFS(attempt)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(run, "rollouts", "other", "0", "report.json")); err != nil {
		t.Fatal(err)
	}
	volatile := regexp.MustCompile(`\d{8}-\d{6}-[0-9a-f]{6}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)
	testkit.Golden(t, "testdata/view-list.golden", volatile.ReplaceAllString(view(cli.ExitDone, run), "X"))

	broken := filepath.Join(t.TempDir(), "broken.json")
	testkit.WriteFile(t, broken, "{}")
	for _, args := range [][]string{
		{run, run}, {"missing"}, {t.TempDir()}, {broken}, {"--step", "5", attempt}, {"--step", "-1", attempt},
	} {
		view(cli.ExitUsage, args...)
	}
}

// A replay shows which results differ.
func TestReplay(t *testing.T) {
	w := newWorld(t, sayHello, "<function=execute_bash>\n<parameter=cmd>cat hello.txt</parameter>\n</function>", submit)
	own, run := repository(t), filepath.Join(t.TempDir(), "run")
	if code := w.run(t, "solve", "--env", "host", "--format", "xml", "--repo", own, "--out", run,
		"x"); code != cli.ExitDone {
		t.Fatalf("exit code %d\n%s", code, &w.err)
	}
	recording := filepath.Join(run, "rollouts", "greeter", "0", "trajectory.json")
	testkit.WriteFile(t, filepath.Join(own, "hello.txt"), "goodbye, all\n")
	if code := w.run(t, "replay", "--env", "host", "--repo", own, recording); code != cli.ExitUnsolved {
		t.Errorf("exit code %d: %s", code, &w.err)
	}
	for _, want := range []string{"  1  same       execute_bash sed", "  2  DIFFERENT  execute_bash cat",
		"     -hello\n     +hello, all\n", "3 calls, 1 with another"} {
		if !strings.Contains(w.out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &w.out)
		}
	}
	if code := w.run(t, "replay", "--json", "--env", "host", "--repo", own, recording); code != cli.ExitUnsolved {
		t.Errorf("exit code %d: %s", code, &w.err)
	}
	if got := w.result(t); got["calls"] != 3.0 || got["different"] != 1.0 || got["exit_code"] != 3.0 {
		t.Errorf("result %v", got)
	}
	for _, args := range [][]string{{}, {"missing.json"}, {recording, "--repo", "missing"},
		{recording, "--env", "docker"}} {
		if code := w.run(t, append([]string{"replay"}, args...)...); code != cli.ExitUsage {
			t.Errorf("replay %v: exit code %d: %s", args, code, &w.err)
		}
	}
}

// Every kind of run is shown as far as it has got, even while it is running.
func TestViewOfRuns(t *testing.T) {
	w := newWorld(t)
	view := func(want int, path string, texts ...string) {
		t.Helper()
		if code := w.run(t, "view", path); code != want {
			t.Errorf("view %s: exit code %d, want %d: %s", path, code, want, &w.err)
		}
		for _, text := range texts {
			if got := w.out.String() + w.err.String(); !strings.Contains(got, text) {
				t.Errorf("it does not show %q:\n%s", text, got)
			}
		}
	}
	path := t.TempDir()
	d, err := run.Create(path, run.Manifest{Kind: run.Grade, ID: "g1", Program: "deepswe test"})
	if err != nil {
		t.Fatal(err)
	}
	view(cli.ExitDone, path, "g1  grade, begun ", "\nrunning: process ", "attempts: 0 finished, 0 failed\n")
	for i, o := range []run.Outcome{{Result: run.Result{Reward: new(1.0)}}, {Err: "no sandbox"},
		{Result: run.Result{Reward: new(0.0)}}} {
		o.Job, o.Tries = run.Job{Task: "t", Group: "a/b", Index: i}, 1
		if err := d.Record(o); err != nil {
			t.Fatal(err)
		}
	}
	view(cli.ExitDone, path, "attempts: 2 finished, 1 failed; 1 of 2 graded are solved\n",
		"rollouts/a%2Fb/0  done                  1\n", "rollouts/a%2Fb/1  failed  ",
		"rollouts/a%2Fb/2  done                  0\n")
	events := filepath.Join(path, "events.jsonl")
	whole, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, events, string(whole[:len(whole)-10]))
	view(cli.ExitDone, path, "attempts: 1 finished, 1 failed; 1 of 1 graded are solved\n")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	view(cli.ExitDone, path, "\nnot running; last event ")
	trained, err := run.Create(w.deps.RunDir("lake"), run.Manifest{Kind: run.Train})
	if err != nil {
		t.Fatal(err)
	}
	if err := trained.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, trained.Path("report.html"), "")
	view(cli.ExitDone, "lake", "lake  train, begun ", "/lake/report.html\n", "lake has steps\n")
	testkit.WriteFile(t, filepath.Join(path, "manifest.json"), `{"version":9,"kind":"grade","program":"deepswe 9"}`)
	view(cli.ExitUsage, path, "was made by deepswe 9, in format 9", "use a newer deepswe")
}

// solve makes a run directory like any other run.
func TestRunOfSolve(t *testing.T) {
	w := newWorld(t, sayHello, submit)
	own, path := repository(t), filepath.Join(t.TempDir(), "run")
	args := []string{"solve", "--env", "host", "--format", "xml", "--repo", own, "--out", path, "x"}
	if code := w.run(t, args...); code != cli.ExitDone {
		t.Fatalf("exit code %d\n%s", code, &w.err)
	}
	r, err := run.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	var s solveSettings
	if err := json.Unmarshal(r.Manifest.Settings, &s); err != nil {
		t.Fatal(err)
	}
	if r.Manifest.Kind != run.Solve || r.Manifest.ID == "" || s.Repo != own || s.Task != "greeter" || s.Sandbox == "" {
		t.Errorf("manifest %+v, settings %+v", r.Manifest, s)
	}
	if len(r.Outcomes) != 1 || r.Outcomes[0].StopReason != trajectory.Submitted || r.Outcomes[0].Task != "greeter" ||
		r.Outcomes[0].Failed() {
		t.Errorf("outcomes %+v", r.Outcomes)
	}
	if code := w.run(t, args...); code != cli.ExitUsage ||
		!strings.Contains(w.err.String(), "holds a run already: choose another --out") {
		t.Errorf("a second run in the same place: exit code %d: %s", code, &w.err)
	}
}
