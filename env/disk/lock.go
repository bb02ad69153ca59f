package disk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// ErrLocked reports that another process holds a lock.
var ErrLocked = errors.New("in use")

// Lock is a lock file that one process holds at a time. The kernel releases it when the process ends, however it
// ends. The file stays.
type Lock struct{ file *os.File }

// Holder describes the process that holds a lock, as written in the lock file.
type Holder struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
	Process string    `json:"process,omitempty"` // an Owner
}

// String names the holder in messages.
func (h Holder) String() string {
	return fmt.Sprintf("process %d on %s since %s", h.PID, h.Host, h.Started.Format(time.DateTime))
}

// ReadHolder reads who holds the lock at path, or returns fs.ErrNotExist if it is free. It does not try the lock,
// so the file need not be writable. l is Unknown if the process cannot be seen from here.
func ReadHolder(path string) (h Holder, l Liveness, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return h, Dead, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return h, Dead, fs.ErrNotExist // released
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return h, Unknown, fmt.Errorf("read lock %s: %w", path, err)
	}
	owner, ok := parseOwner(h.Process)
	if host, err := os.Hostname(); !ok || err != nil || host != h.Host {
		return h, Unknown, nil
	}
	return h, owner.Liveness(Self()), nil
}

// lingers is how long a lock may outlive its holder: a child that a killed process was about to start has the open file
// too, until its own program begins.
const lingers = 5 * time.Second

// TryLock takes the lock at path, or returns [ErrLocked] with the name of its holder.
func TryLock(path string) (*Lock, error) {
	l, err := openLock(path)
	if err != nil {
		return nil, err
	}
	err = l.flock(syscall.LOCK_EX | syscall.LOCK_NB)
	for begun := time.Now(); errors.Is(err, syscall.EWOULDBLOCK) && time.Since(begun) < lingers; {
		if _, alive, read := ReadHolder(path); read != nil || alive != Dead {
			break
		}
		time.Sleep(10 * time.Millisecond)
		err = l.flock(syscall.LOCK_EX | syscall.LOCK_NB)
	}
	if err != nil {
		defer l.file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		var h Holder
		if json.NewDecoder(l.file).Decode(&h) != nil {
			return nil, fmt.Errorf("%w by another process", ErrLocked)
		}
		return nil, fmt.Errorf("%w by %s", ErrLocked, h)
	}
	if err := l.sign(); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), l.Close())
	}
	return l, nil
}

// WaitLock waits for the lock at path and takes it. Use it only where locks are held briefly.
func WaitLock(path string) (*Lock, error) {
	l, err := openLock(path)
	if err != nil {
		return nil, err
	}
	if err := l.flock(syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), l.file.Close())
	}
	return l, nil
}

// Close releases the lock.
func (l *Lock) Close() error {
	// An empty file means that the lock is free. Closing alone does not free it while a child of this process is
	// between fork and exec: the child has the open file too.
	return errors.Join(l.file.Truncate(0), l.flock(syscall.LOCK_UN), l.file.Close())
}

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

// sign writes this process's Holder into the lock file.
func (l *Lock) sign() error {
	host, err := os.Hostname()
	if err != nil {
		host = "an unnamed host"
	}
	line, err := MarshalJSON(Holder{
		PID: os.Getpid(), Host: host, Started: time.Now().UTC().Truncate(time.Second), Process: Self().String(),
	})
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(append(line, '\n'), 0)
	return err
}
