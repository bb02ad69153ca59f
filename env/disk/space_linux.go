package disk

import (
	"fmt"
	"syscall"
)

// SpaceOf describes the file system that holds path. Space reserved for root does not count as free.
func SpaceOf(path string) (Space, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return Space{}, fmt.Errorf("free space of %s: %w", path, err)
	}
	unit := int64(s.Frsize) //nolint:unconvert // its type depends on the architecture
	if unit <= 0 {
		unit = int64(s.Bsize) //nolint:unconvert // its type depends on the architecture
	}
	return Space{
		Free: int64(s.Bavail) * unit, Total: int64(s.Blocks) * unit, FreeFiles: int64(s.Ffree), Files: int64(s.Files),
	}, nil
}
