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
	return bundledTasks(path) != nil && errors.Is(err, fs.ErrNotExist)
}

// bundledNames are the names of the bundled datasets.
func bundledNames() []string {
	return []string{bugs.Name, bugs.DemonstrationsName, bugs.ShortcutName, bugs.ShownName}
}

// bundledTasks returns the tasks of a bundled dataset; nil if there is none with this name.
func bundledTasks(name string) iter.Seq[env.Task] {
	switch name {
	case bugs.Name:
		return bugs.Tasks()
	case bugs.DemonstrationsName:
		return bugs.Demonstrations()
	case bugs.ShortcutName:
		return bugs.Shortcut()
	case bugs.ShownName:
		return bugs.Shown()
	}
	return nil
}

// bundled yields what is made of the tasks of a bundled dataset.
func bundled[T any](name string, of func(env.Task) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for t := range bundledTasks(name) {
			t.Tests.Script = Script(nil, t.Tests.Script)
			if !yield(of(t), nil) {
				return
			}
		}
	}
}
