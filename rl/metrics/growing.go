package metrics

import (
	"errors"
	"os"
)

// growing is a file that is appended to. What a failed append has left is overwritten by the next one.
type growing struct {
	file *os.File
	size int64
}

// createGrowing replaces a file.
func createGrowing(path string, begin []byte) (*growing, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	g := &growing{file: file}
	if err := g.append(begin); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return g, nil
}

// append returns when the bytes are on the disk.
func (g *growing) append(b []byte) error {
	if _, err := g.file.WriteAt(b, g.size); err != nil {
		return err
	}
	if err := g.file.Sync(); err != nil {
		return err
	}
	g.size += int64(len(b))
	return nil
}

// close closes a file; nil is one that was never created.
func (g *growing) close() error {
	if g == nil {
		return nil
	}
	return g.file.Close()
}
