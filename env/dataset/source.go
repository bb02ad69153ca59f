package dataset

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
)

// source is what a path refers to: record files, or Harbor task folders.
type source struct {
	files   []string
	folders []string
}

// open yields the values that harbor and record make of the Harbor tasks and records at a path, or that own makes of
// the tasks of a bundled dataset. Records have only the wanted fields.
func open[T any](
	path string, wanted []string, folder func(string) (T, error), entry func(record) (T, error), own func(env.Task) T,
) (iter.Seq2[T, error], error) {
	if Bundled(path) {
		return bundled(path, own), nil
	}
	s, err := find(path)
	if err != nil {
		return nil, err
	}
	return func(yield func(T, error) bool) {
		for _, name := range s.folders {
			if !yield(folder(name)) {
				return
			}
		}
		for _, file := range s.files {
			for r, err := range records(file, wanted) {
				var t T
				if err == nil {
					t, err = entry(r)
				}
				if !yield(t, err) {
					return
				}
			}
		}
	}, nil
}

// find determines what a path refers to.
func find(path string) (source, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(path, "*?[") {
		files, err := filepath.Glob(path)
		if err != nil || len(files) == 0 {
			return source{}, fmt.Errorf("no file matches %s", path)
		}
		return source{files: files}, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return source{}, fmt.Errorf("%w, and no bundled dataset has that name (bundled: %s)", err,
			strings.Join(bundledNames(), ", "))
	}
	if err != nil {
		return source{}, err
	}
	if !info.IsDir() {
		return source{files: []string{path}}, nil
	}
	var s source
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir() && isRecords(name) && isRegular(name):
			s.files = append(s.files, name)
		case d.IsDir() && isHarbor(name):
			s.folders = append(s.folders, name)
			return fs.SkipDir
		case d.IsDir() && name != path && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return source{}, err
	}
	return s, s.check(path)
}

// check rejects a directory whose content is ambiguous.
func (s source) check(path string) error {
	switch {
	case len(s.files) == 0 && len(s.folders) == 0:
		return fmt.Errorf("%s contains neither record files (.parquet, .jsonl, .json) nor Harbor tasks "+
			"(folders with a task.toml)", path)
	case len(s.files) > 0 && len(s.folders) > 0:
		return fmt.Errorf("%s contains record files (%s) as well as Harbor tasks (%s): name one of them",
			path, s.files[0], s.folders[0])
	}
	splits := map[string]bool{}
	for _, f := range s.files {
		splits[filepath.Join(path, split(f)+"*")] = true
	}
	if names := slices.Sorted(maps.Keys(splits)); len(names) > 1 {
		return fmt.Errorf("%s contains several sets of files: name one of %s", path, strings.Join(names, ", "))
	}
	return nil
}

var shard = env.Pattern(`-\d{5}-of-\d{5}.*$`)

// split returns the common part of the names of a dataset's shards: "train" for "train-00000-of-00010.parquet".
func split(file string) string {
	name := filepath.Base(file)
	if i := shard().FindStringIndex(name); i != nil {
		return name[:i[0]]
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}

// isRecords reports whether a file contains records, judging by its name.
func isRecords(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	switch filepath.Ext(name) {
	case ".jsonl", ".ndjson", ".json", ".parquet":
		base := filepath.Base(name)
		return base != "dataset_info.json" && base != "state.json" && !strings.HasSuffix(name, ".schema.json")
	}
	return false
}

// isRegular reports whether name refers to a regular file. Reading a device might never end, and a FIFO might
// block.
func isRegular(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

func isParquet(name string) bool { return filepath.Ext(name) == ".parquet" }

func isHarbor(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, "task.toml"))
	return err == nil
}
