package ranking

import (
	"encoding/json"
	"sync"

	"deepswe/env/disk"
)

// shelf is one file of a [Store]: JSON lines, each a T that can be looked up by its keys. A T is not changed after it
// was added.
type shelf[T any] struct {
	// keys returns the keys of a line. Of several lines with a key, the newest counts. An error means that the line is
	// invalid. keys is called by one goroutine at a time.
	keys func(*T) ([]string, error)
	log  *disk.Log

	mu    sync.Mutex
	lines []*T // in file order
	known map[string]*T
}

// openShelf reads the file at the path, or creates it.
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

// find returns the newest line with the key, nil if there is none.
func (s *shelf[T]) find(key string) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[key]
}

// all returns the lines in file order. They must not be changed.
func (s *shelf[T]) all() []*T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines[:len(s.lines):len(s.lines)]
}

// keep adds a line, which is on disk when keep returns.
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
