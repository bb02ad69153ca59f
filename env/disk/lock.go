package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// ErrLocked says that another process holds a lock.
var ErrLocked = errors.New("in use")

// Lock is a file that one process holds at a time. The lock is the kernel's: it ends with its process, however that
// ends. The file stays.
type Lock struct{ file *os.File }

// holder is what the file of a lock says, for people.
type holder struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
}

// TryLock takes the lock at the path, or fails with [ErrLocked] and says who holds it.
func TryLock(path string) (*Lock, error) {
	l, err := openLock(path)
	if err != nil {
		return nil, err
	}
	if err := l.flock(syscall.LOCK_EX | syscall.LOCK_NB); err != nil {
		defer l.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		var h holder
		if json.NewDecoder(l.file).Decode(&h) != nil {
			return nil, fmt.Errorf("%w by another process", ErrLocked)
		}
		return nil, fmt.Errorf("%w by process %d on %s since %s", ErrLocked, h.PID, h.Host, h.Started.Format(time.DateTime))
	}
	if err := l.sign(); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), l.Close())
	}
	return l, nil
}

// WaitLock takes the lock at the path when its holder gives it up. It is for work that takes moments.
func WaitLock(path string) (*Lock, error) {
	l, err := openLock(path)
	if err != nil {
		return nil, err
	}
	if err := l.flock(syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), l.Close())
	}
	return l, nil
}

// Close gives up the lock.
func (l *Lock) Close() error { return l.file.Close() }

func openLock(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return &Lock{f}, nil
}

func (l *Lock) flock(how int) error {
	for {
		if err := syscall.Flock(int(l.file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// sign writes down who holds the lock.
func (l *Lock) sign() error {
	host, err := os.Hostname()
	if err != nil {
		host = "an unnamed host"
	}
	line, err := MarshalJSON(holder{PID: os.Getpid(), Host: host, Started: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(append(line, '\n'), 0)
	return err
}
