//go:build linux

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
)

// Reap removes the scratch directories, processes and control groups of dead owners.
func (b *base) Reap(ctx context.Context, o env.ReapOptions) ([]env.Leftover, error) {
	entries, err := os.ReadDir(b.parent)
	if err != nil {
		return nil, fmt.Errorf("reap %s sandboxes: %w", b.name, err)
	}
	var all []env.Leftover
	var failed []error
	for _, entry := range entries {
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		dir := filepath.Join(b.parent, entry.Name())
		found, err := b.abandoned(dir, o)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if found == nil {
			continue
		}
		left := env.Leftover{
			Provider: b.name, Kind: "directory", ID: dir, Run: found.Run, Rollout: found.Rollout, Owner: found.Name,
			Age: time.Since(found.Created),
		}
		all = append(all, left)
		for _, pid := range processesIn(dir) {
			left.Kind, left.ID = "process", fmt.Sprint(pid)
			all = append(all, left)
		}
		for _, group := range found.Groups {
			if _, err := os.Stat(group); err == nil {
				left.Kind, left.ID = "cgroup", group
				all = append(all, left)
			}
		}
		if !o.DryRun {
			failed = append(failed, dispose(dir, *found))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return all, fmt.Errorf("reap %s sandboxes: %w", b.name, err)
	}
	return all, nil
}

// abandoned returns a scratch directory's owner if the directory may be reaped, otherwise nil. Because all users
// may write to the temporary directory, it trusts only files that this user owns.
func (b *base) abandoned(dir string, o env.ReapOptions) (*owner, error) {
	process, ours := parsePrefix(filepath.Base(dir), b.name)
	if !ours {
		return nil, nil
	}
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // its owner has removed it meanwhile
	}
	if err != nil {
		return nil, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(stat.Uid) != os.Geteuid() {
		return nil, nil
	}
	found, err := loadOwner(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// The owner died before it wrote more than the name.
		found = b.owner
		found.Name, found.Created, found.Process = "?", info.ModTime(), process
	} else if err != nil {
		return nil, err
	}
	if !o.All && !found.dead(b.owner) {
		return nil, nil
	}
	for _, parent := range b.groups.parents { // the owner may not have recorded them yet
		found.Groups = append(found.Groups, filepath.Join(parent, filepath.Base(dir)))
	}
	slices.Sort(found.Groups)
	found.Groups = slices.Compact(found.Groups)
	return &found, nil
}

// dispose kills what a scratch directory's owner has left running, and removes the directory.
func dispose(dir string, o owner) error {
	var failed []error
	if o.Guest != nil && o.Guest.Liveness() == disk.Alive {
		_ = syscall.Kill(o.Guest.PID, syscall.SIGKILL)
		failed = append(failed, awaitEnd(*o.Guest))
	}
	for _, group := range o.Groups {
		if strings.Contains(group, "/deepswe-") {
			failed = append(failed, removeGroup(group, ""))
		}
	}
	return errors.Join(errors.Join(failed...), sweep(dir), disk.RemoveScratch(dir))
}

// awaitEnd waits until a killed process is gone, with all its threads. Until then it may start another process, which
// the search for what it has started would not find.
func awaitEnd(p disk.Process) error {
	for deadline := time.Now().Add(endTimeout); ; time.Sleep(time.Millisecond) {
		s, err := disk.ReadStat(p.PID)
		if err != nil || s.Start != p.Start {
			return nil
		}
		threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(p.PID), "task"))
		if !s.Alive() && (err != nil || len(threads) < 2) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d does not end", p.PID)
		}
	}
}

// endTimeout is how long a killed process may take to end.
const endTimeout = 5 * time.Second

// processesIn returns the processes that belong to a scratch directory: those that were started with a home in it
// or have their working directory in it.
func processesIn(dir string) []int {
	pids, _ := disk.PIDs()
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() || !belongsTo(pid, dir) })
}

func belongsTo(pid int, dir string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	cwd, err := os.Readlink(filepath.Join(proc, "cwd"))
	if err == nil && within(strings.TrimSuffix(cwd, " (deleted)"), dir) {
		return true
	}
	environ, err := os.ReadFile(filepath.Join(proc, "environ"))
	return err == nil && bytes.Contains(append([]byte{0}, environ...), []byte("\x00HOME="+dir+"/"))
}

// sweep kills the processes that belong to a scratch directory.
func sweep(dir string) error {
	for pause := time.Millisecond; ; pause *= 2 {
		pids := processesIn(dir)
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
