//go:build linux

package local_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/local"
)

// victim is the other process of TestReap: it starts sandboxes until it is killed.
type victim struct{ kind, scratch, source, mark string }

// victimEnv makes the test binary a victim.
const victimEnv = "DEEPSWE_TEST_VICTIM"

func (v victim) run() error {
	p, err := newProvider(v.kind, v.scratch)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	sleep := fmt.Sprintf("setsid sleep %s >/dev/null 2>&1 & sleep %[1]s &", v.mark)
	for i := 0; ; i++ {
		sb, err := p.Start(context.Background(), env.Spec{
			CopyIn: v.source, Run: "victim", Rollout: fmt.Sprint(i), Prepare: []string{"echo prepared > prepared"},
		})
		if err != nil {
			return err
		}
		if _, err := sb.Run(context.Background(), env.Command{Line: sleep}); err != nil {
			return err
		}
		if i%2 == 0 {
			if err := sb.Close(context.Background()); err != nil {
				return err
			}
		}
	}
}

func newProvider(kind, scratch string) (env.Provider, error) {
	if kind == "host" {
		return local.NewHost(local.Options{Scratch: scratch})
	}
	return local.NewBwrap(local.Options{Scratch: scratch})
}

// TestReap kills a process that uses sandboxes, at different moments. One reap must remove all that it left, and not
// affect another process.
func TestReap(t *testing.T) {
	for _, kind := range []string{"host", "bwrap"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if kind == "bwrap" {
				newBwrap(t)
			}
			mark := fmt.Sprint(1_000_000_000 + rand.IntN(1_000_000_000)) // a duration that no other process sleeps
			scratch := t.TempDir()
			source := t.TempDir()
			for i := range 40 {
				if err := os.WriteFile(filepath.Join(source, fmt.Sprint(i)), make([]byte, 4096), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			p, err := newProvider(kind, scratch)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			neighbour, err := p.Start(t.Context(), env.Spec{Run: "neighbour"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { neighbour.Close(context.Background()) })
			rounds := 12
			if testing.Short() {
				rounds = 3
			}
			reaped := 0
			for round := range rounds {
				v := victim{kind: kind, scratch: scratch, source: source, mark: mark}
				killVictim(t, v, time.Duration(round)*11*time.Millisecond)
				dry, err := p.Reap(t.Context(), env.ReapOptions{DryRun: true})
				if err != nil {
					t.Fatal(err)
				}
				left, err := p.Reap(t.Context(), env.ReapOptions{})
				if err != nil {
					t.Fatal(err)
				}
				reaped += len(left)
				if len(dry) > 0 && len(left) == 0 {
					t.Errorf("round %d: a dry run has removed %+v", round, dry)
				}
				for _, l := range left {
					if l.Provider != kind || l.Run == "neighbour" {
						t.Errorf("reaped %+v", l)
					}
				}
				nothingOf(t, scratch, mark)
				if err := neighbour.Ping(t.Context()); err != nil {
					t.Fatalf("round %d: the neighbour: %v", round, err)
				}
			}
			if reaped == 0 {
				t.Error("nothing was ever left to reap: the victims were killed too early")
			}
		})
	}
}

// killVictim runs a victim, and kills it some time after it has begun.
func killVictim(t *testing.T, v victim, after time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%s:%s:%s", victimEnv, v.kind, v.scratch, v.source, v.mark))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the victim said %q: %v", line, err)
	}
	time.Sleep(after + time.Millisecond)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // it was killed
}

// nothingOf checks that nothing is left of a dead process's sandboxes.
func nothingOf(t *testing.T, scratch, mark string) {
	t.Helper()
	owners, err := filepath.Glob(filepath.Join(scratch, "deepswe-*", "owner.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range owners {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), `"victim"`) {
			t.Errorf("%s is left", filepath.Dir(path))
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var left []int
		pids, err := disk.PIDs()
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err == nil && strings.Contains(string(line), mark) {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("the processes %v are left", left)
			break
		}
	}
}

// TestReapBelieves: anybody can write to the directory for temporary files, so its names prove nothing.
func TestReapBelieves(t *testing.T) {
	scratch := t.TempDir()
	p, err := local.NewHost(local.Options{Scratch: scratch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "kept"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(scratch, "deepswe-host-1-1-link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"deepswe-host", "deepswe-host-x-y-z", "deepswe-other-1-1-1", "something"} {
		if err := os.Mkdir(filepath.Join(scratch, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The owner died before it could write owner.json.
	if err := os.Mkdir(filepath.Join(scratch, "deepswe-host-999999999-1-abc"), 0o755); err != nil {
		t.Fatal(err)
	}
	left, err := p.Reap(t.Context(), env.ReapOptions{})
	if err != nil || len(left) != 1 || filepath.Base(left[0].ID) != "deepswe-host-999999999-1-abc" {
		t.Errorf("%+v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Error(err)
	}
	if os.Geteuid() != 0 {
		return
	}
	foreign := filepath.Join(scratch, "deepswe-host-999999999-2-abc")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	owner := fmt.Appendf(nil, `{"guest":{"pid":%d,"start":1}}`, os.Getpid())
	if err := os.WriteFile(filepath.Join(foreign, "owner.json"), owner, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(foreign, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if left, err := p.Reap(t.Context(), env.ReapOptions{}); err != nil || len(left) != 0 {
		t.Errorf("another user's directory: %+v, %v", left, err)
	}
}
