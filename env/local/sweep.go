//go:build linux

package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"deepswe/env/disk"
)

// inhabitants are the processes that belong to a scratch directory: they were started with its home, or are in it.
func inhabitants(dir string) []int {
	pids, _ := disk.PIDs()
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() || !lives(pid, dir) })
}

func lives(pid int, dir string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	if cwd, err := os.Readlink(filepath.Join(proc, "cwd")); err == nil && within(strings.TrimSuffix(cwd, " (deleted)"), dir) {
		return true
	}
	environ, err := os.ReadFile(filepath.Join(proc, "environ"))
	return err == nil && bytes.Contains(append([]byte{0}, environ...), []byte("\x00HOME="+dir+"/"))
}

// sweep kills what still lives in a scratch directory.
func sweep(dir string) error {
	for pause := time.Millisecond; ; pause *= 2 {
		pids := inhabitants(dir)
		if len(pids) == 0 {
			return nil
		}
		if pause > time.Second {
			return fmt.Errorf("%d processes of %s do not end", len(pids), dir)
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end process %d of %s: %w", pid, dir, err)
			}
		}
		time.Sleep(pause)
	}
}
