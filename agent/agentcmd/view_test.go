package agentcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/agent/cli"
	"deepswe/env/testkit"
)

// What view shows of a run that solve made, and of its parts.
func TestView(t *testing.T) {
	long := "<function=execute_bash>\n<parameter=cmd>seq 100; printf '\\033[2Jwiped\\r\\n'</parameter>\n</function>"
	w := newWorld(t, sayHello, "No call here.", long, submit)
	own, run := repository(t), filepath.Join(t.TempDir(), "run")
	if code := w.run(t, "solve", "--env", "host", "--format", "xml", "--repo", own, "--out", run, "Say hello & not <goodbye>"); code != cli.ExitDone {
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
		"\nsystem\n", "  Say hello & not <goodbye>", "\nstep 1  100 tokens read, 10 written\n  <function=execute_bash>\n", "\nobservation\n",
		"more lines (--full)\n", "\nend submitted\n", "\npatch\ndiff --git a/hello.txt b/hello.txt\n",
	} {
		if !strings.Contains(whole, want) {
			t.Errorf("view does not show %q:\n%s", want, whole)
		}
	}
	if got := view(cli.ExitDone, attempt); got != whole {
		t.Error("an attempt alone is shown in another way than the run that holds it")
	}
	if got := view(cli.ExitDone, "--step", "3", "--full", attempt); !strings.Contains(got, "  100\n  ") || strings.Contains(got, "step 2") || strings.Contains(got, "patch") {
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
	testkit.Golden(t, "testdata/view-list.golden", view(cli.ExitDone, run))

	broken := filepath.Join(t.TempDir(), "broken.json")
	writeFile(t, broken, "{}")
	for _, args := range [][]string{
		{}, {run, run}, {"missing"}, {t.TempDir()}, {broken}, {"--step", "5", attempt}, {"--step", "-1", attempt},
	} {
		view(cli.ExitUsage, args...)
	}
}

// A replay shows where results differ, and only there.
func TestReplay(t *testing.T) {
	w := newWorld(t, sayHello, "<function=execute_bash>\n<parameter=cmd>cat hello.txt</parameter>\n</function>", submit)
	own, run := repository(t), filepath.Join(t.TempDir(), "run")
	if code := w.run(t, "solve", "--env", "host", "--format", "xml", "--repo", own, "--out", run, "x"); code != cli.ExitDone {
		t.Fatalf("exit code %d\n%s", code, &w.err)
	}
	recording := filepath.Join(run, "rollouts", "greeter", "0", "trajectory.json")
	writeFile(t, filepath.Join(own, "hello.txt"), "goodbye, all\n")
	if code := w.run(t, "replay", "--env", "host", "--repo", own, recording); code != cli.ExitUnsolved {
		t.Errorf("exit code %d: %s", code, &w.err)
	}
	for _, want := range []string{"  1  same       execute_bash sed", "  2  DIFFERENT  execute_bash cat", "     -hello\n     +hello, all\n", "3 calls, 1 with another"} {
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
	for _, args := range [][]string{{}, {"missing.json"}, {recording, "--repo", "missing"}, {recording, "--env", "docker"}} {
		if code := w.run(t, append([]string{"replay"}, args...)...); code != cli.ExitUsage {
			t.Errorf("replay %v: exit code %d: %s", args, code, &w.err)
		}
	}
}
