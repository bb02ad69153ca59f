package disk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// If a process was killed while it started another, that one holds its lock until it runs its own program. Meanwhile,
// nobody is told that the dead process holds the lock.
func TestTryLockAfterAKill(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holder func(Owner) Owner
		locked bool
	}{
		"dead":  {func(o Owner) Owner { o.Start++; return o }, false},
		"alive": {func(o Owner) Owner { return o }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "lock")
			l, err := openLock(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(l.flock(syscall.LOCK_EX), l.sign()); err != nil {
				t.Fatal(err)
			}
			host, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			line, err := MarshalJSON(Holder{PID: os.Getpid(), Host: host, Process: c.holder(Self()).String()})
			if err == nil {
				err = errors.Join(l.file.Truncate(0), os.WriteFile(path, append(line, '\n'), 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			child := exec.Command("sleep", "0.3")
			child.ExtraFiles = []*os.File{l.file}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			_ = l.file.Close() // the child still has it
			begun := time.Now()
			again, err := TryLock(path)
			if c.locked != errors.Is(err, ErrLocked) || !c.locked && err != nil {
				t.Errorf("after %v: %v", time.Since(begun), err)
			}
			if err == nil {
				_ = again.Close()
			}
			if err := child.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
