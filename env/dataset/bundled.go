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
	return (path == bugs.Name || path == bugs.DemonstrationsName) && errors.Is(err, fs.ErrNotExist)
}

// bundled yields what is made of the tasks of a bundled dataset.
func bundled[T any](name string, of func(env.Task) T) iter.Seq2[T, error] {
	all := bugs.Tasks()
	if name == bugs.DemonstrationsName {
		all = bugs.Demonstrations()
	}
	return func(yield func(T, error) bool) {
		for t := range all {
			t.Tests.Script = testScript(nil, t.Tests.Script)
			if !yield(of(t), nil) {
				return
			}
		}
	}
}
