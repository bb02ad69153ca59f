package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process works in the run directory.
var ErrLocked = errors.New("the run directory is in use")

// owner is what a LOCK file says, for people: the lock itself is the kernel's and ends with its process.
type owner struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
}

// lock takes the file at the path for this process, or tells whose it is.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		var o owner
		if json.NewDecoder(f).Decode(&o) != nil {
			return nil, fmt.Errorf("%w by another process", ErrLocked)
		}
		return nil, fmt.Errorf("%w by process %d on %s since %s", ErrLocked, o.PID, o.Host, o.Started.Format(time.DateTime))
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unnamed host"
	}
	line, err := marshal(owner{PID: os.Getpid(), Host: host, Started: time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(line, '\n'), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}
