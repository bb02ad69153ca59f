package train

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"deepswe/agent/run"
)

// childDir is the variable that makes the test binary a training process in that directory.
const childDir = "DEEPSWE_TEST_TRAIN_DIR"

// trainChild trains tiny, from where the directory stands, and writes a line for each thing that happens.
func trainChild(dir string) int {
	c, err := Load([]byte(tiny), BuiltIn())
	if err == nil {
		o := Options{Dir: dir, Resume: run.Exists(dir), Observer: observing(func(n int) { fmt.Println(n) })}
		_, err = Start(context.Background(), c, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// The process is killed after every 40th line that it writes, wherever it then is, and started again until it is done.
func TestKillMinusNine(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, tiny)
	want, _ := undisturbed(t, c)
	dir := filepath.Join(t.TempDir(), "run")
	kills := 0
	for {
		if kills > 200 {
			t.Fatal("the run does not come to an end")
		}
		if !runAndKill(t, dir, 40) {
			break
		}
		kills++
	}
	if kills < 2 {
		t.Errorf("killed %d times only", kills)
	}
	sameOutcome(t, want, outcomeOf(t, dir, c))
}

// runAndKill runs a child and kills it after so many lines; false says that it ended by itself.
func runAndKill(t *testing.T, dir string, lines int) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(out)
	for n := 1; in.Scan(); n++ {
		if n == lines {
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	if err == nil {
		return false
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Exited() {
		t.Fatalf("child: %v", err)
	}
	return true
}
