package dataset

import (
	"errors"
	"io/fs"
	"iter"
	"os"

	"deepswe/env"
	"deepswe/env/dataset/bugs"
)

// Bundled reports whether a path names a bundled dataset. A file with the same name takes precedence.
func Bundled(path string) bool {
	_, err := os.Lstat(path)
	return path == bugs.Name && errors.Is(err, fs.ErrNotExist)
}

// bundled yields what is made of the tasks of a dataset that the program brings.
func bundled[T any](of func(env.Task) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for t := range bugs.Tasks() {
			t.Tests.Script = testScript(nil, t.Tests.Script)
			if !yield(of(t), nil) {
				return
			}
		}
	}
}
