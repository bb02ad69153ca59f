package disk

import (
	"errors"
	"fmt"
)

// Space is how much room a file system has.
type Space struct {
	// Free and Total are bytes, FreeFiles and Files inodes: 0 of 0 where the file system does not count them.
	Free, Total      int64
	FreeFiles, Files int64
}

// ErrNearlyFull says that a file system has less room than [Space.Floor]: the machine is at fault, and no sandbox is.
var ErrNearlyFull = errors.New("disk nearly full")

// The room that is left to the rest of the machine: less where the file system itself is small.
const (
	floorBytes = 2 << 30
	floorFiles = 50_000
	floorShare = 20 // a twentieth
)

// Floor is the room that sandboxes leave free.
func (s Space) Floor() (bytes, files int64) {
	return min(floorBytes, s.Total/floorShare), min(floorFiles, s.Files/floorShare)
}

// Check returns an error that wraps ErrNearlyFull, and names the directory, where there is less room than the floor.
func (s Space) Check(dir string) error {
	bytes, files := s.Floor()
	switch {
	case s.Total > 0 && s.Free < bytes:
		return fmt.Errorf("%w: the file system of %s has %s left, and sandboxes need %s",
			ErrNearlyFull, dir, size(s.Free), size(bytes))
	case s.Files > 0 && s.FreeFiles < files:
		return fmt.Errorf("%w: the file system of %s has room for %d more files, and sandboxes need %d",
			ErrNearlyFull, dir, s.FreeFiles, files)
	}
	return nil
}

// size writes bytes for people.
func size(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
