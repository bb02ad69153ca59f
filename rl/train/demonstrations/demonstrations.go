// Package demonstrations has the conversations that the program brings, for a policy to imitate: solutions of tasks of
// the bundled datasets, as deepswe export writes them.
package demonstrations

import (
	"bytes"
	"embed"
	"errors"
	"io/fs"
	"os"

	"deepswe/rl/rowfile"
)

//go:embed *.zst
var files embed.FS

func file(name string) string { return name + ".jsonl.zst" }

// Bundled reports whether a path is the name of bundled demonstrations. A file with the same name takes precedence.
func Bundled(path string) bool {
	_, bundled := fs.Stat(files, file(path))
	_, there := os.Lstat(path)
	return bundled == nil && errors.Is(there, fs.ErrNotExist)
}

// Open opens a file, or bundled demonstrations.
func Open(path string) (*rowfile.Source, error) {
	if !Bundled(path) {
		return rowfile.Open(nil, path)
	}
	data, err := files.ReadFile(file(path))
	if err != nil {
		return nil, err
	}
	return rowfile.Open(bytes.NewReader(data), "-")
}
