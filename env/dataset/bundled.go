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

// bundledSets are the bundled datasets.
var bundledSets = []struct {
	name  string
	tasks func() iter.Seq[env.Task]
}{
	{bugs.Name, bugs.Tasks}, {bugs.DemonstrationsName, bugs.Demonstrations}, {bugs.ShortcutName, bugs.Shortcut},
	{bugs.ShownName, bugs.Shown},
}

func bundledNames() (names []string) {
	for _, s := range bundledSets {
		names = append(names, s.name)
	}
	return names
}

// bundledTasks returns the tasks of a bundled dataset; nil if there is none with this name.
func bundledTasks(name string) iter.Seq[env.Task] {
	for _, s := range bundledSets {
		if s.name == name {
			return s.tasks()
		}
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
