package disk

import (
	"errors"
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
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("locked twice: %v", err)
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
	third, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, third)
}
