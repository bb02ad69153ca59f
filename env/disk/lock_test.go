package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "LOCK")
	first, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) ||
		!strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("locked twice: %v", err)
	}
	if h, alive, err := ReadHolder(path); err != nil || alive == Dead || h.PID != os.Getpid() {
		t.Errorf("held by %v, %v, %v", h, alive, err)
	}
	taken := make(chan error)
	go func() {
		second, err := WaitLock(path)
		if err == nil {
			err = second.Close()
		}
		taken <- err
	}()
	select {
	case err := <-taken:
		t.Fatalf("the lock was taken while it was held: %v", err)
	default:
	}
	mustClose(t, first)
	if err := <-taken; err != nil {
		t.Error(err)
	}
	if h, _, err := ReadHolder(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("held by %v, %v, after it was given up", h, err)
	}
	third, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, third)
}
