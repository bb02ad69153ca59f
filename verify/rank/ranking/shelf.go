package ranking

import (
	"encoding/json"
	"sync"

	"deepswe/env/disk"
)

// shelf is one file of a [Store]: lines of JSON, each a T that is found again by its keys. A T is not changed after it
// was added.
type shelf[T any] struct {
	// keys returns what a line is found by; the newest line of a key counts. An error refuses the line. It is called by
	// one goroutine at a time.
	keys func(*T) ([]string, error)
	log  *disk.Log

	mu    sync.Mutex
	lines []*T // in the order of the file
	known map[string]*T
}

// openShelf reads the file at the path, or begins it.
func openShelf[T any](path string, keys func(*T) ([]string, error)) (*shelf[T], error) {
	s := &shelf[T]{keys: keys, known: map[string]*T{}}
	var err error
	s.log, err = disk.OpenLog(path, func(line []byte) error {
		v := new(T)
		if err := json.Unmarshal(line, v); err != nil {
			return err
		}
		return s.add(v)
	})
	return s, err
}

func (s *shelf[T]) add(v *T) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, err := s.keys(v)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if k != "" {
			s.known[k] = v
		}
	}
	s.lines = append(s.lines, v)
	return nil
}

// find returns the newest line with the key, nil where there is none.
func (s *shelf[T]) find(key string) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[key]
}

// all returns the lines in the order of the file. They are not to be changed.
func (s *shelf[T]) all() []*T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines[:len(s.lines):len(s.lines)]
}

// keep adds a line, which is on the disk when keep returns.
func (s *shelf[T]) keep(v *T) error {
	if err := s.log.Append(v); err != nil {
		return err
	}
	if err := s.log.Sync(); err != nil {
		return err
	}
	return s.add(v)
}

func (s *shelf[T]) close() error {
	if s == nil || s.log == nil {
		return nil
	}
	return s.log.Close()
}
