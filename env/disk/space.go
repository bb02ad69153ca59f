package disk

import (
	"errors"
	"fmt"
)

// Space is the capacity of a file system.
type Space struct {
	// Free and Total are bytes, FreeFiles and Files are inodes; both 0 if the file system does not count them.
	Free, Total      int64
	FreeFiles, Files int64
}

// errNearlyFull reports that a file system has less room than [Space.Floor]. This is the machine's fault, not a
// sandbox's.
var errNearlyFull = errors.New("disk nearly full")

// The room that is kept free for the rest of the machine; on a small file system, 1/floorShare of its capacity.
const (
	floorBytes = 2 << 30
	floorFiles = 50_000
	floorShare = 20
)

// Floor returns the room that sandboxes must leave free.
func (s Space) Floor() (bytes, files int64) {
	return min(floorBytes, s.Total/floorShare), min(floorFiles, s.Files/floorShare)
}

// Check returns an error that wraps errNearlyFull if there is less room than the floor. dir names the file system
// in it.
func (s Space) Check(dir string) error {
	bytes, files := s.Floor()
	switch {
	case s.Total > 0 && s.Free < bytes:
		return fmt.Errorf("%w: the file system of %s has %s left, and sandboxes need %s",
			errNearlyFull, dir, size(s.Free), size(bytes))
	case s.Files > 0 && s.FreeFiles < files:
		return fmt.Errorf("%w: the file system of %s has room for %d more files, and sandboxes need %d",
			errNearlyFull, dir, s.FreeFiles, files)
	}
	return nil
}

// size formats bytes for people.
func size(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
