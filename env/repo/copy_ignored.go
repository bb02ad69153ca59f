package repo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
)

// Copies of ignored files are limited to copyBudget bytes and copyFiles files, not counting what --include selects.
const (
	copyBudget = 1 << 30
	copyFiles  = 200_000
)

// errBudget reports that a directory does not fit into the budget.
var errBudget = errors.New("more than the budget")

// byUse returns the ignored paths, installed dependencies first.
func (s *Snapshot) byUse() []string {
	names := slices.Clone(s.Aside)
	slices.SortStableFunc(names, func(a, b string) int {
		ranks := map[bool]int{true: 0, false: 1}
		return ranks[installed(path.Base(a))] - ranks[installed(path.Base(b))]
	})
	return names
}

// afford hides ignored paths that are not within the budget for copies. What --include selects always is.
func (s *Snapshot) afford(ctx context.Context, l *listing, c choice) error {
	left := room{bytes: copyBudget, files: copyFiles}
	var kept []string
	for _, name := range s.byUse() {
		included := matches(c.include, name)
		need, err := s.measure(ctx, name, left, included)
		switch {
		case errors.Is(err, errBudget):
			l.hide(name, fmt.Sprintf("ignored by git; with it, the copy of ignored files would exceed its budget of %s "+
				"(--include %s copies it)", size(copyBudget), path.Base(name)))
			continue
		case err != nil:
			return err
		case !included:
			left.bytes, left.files = left.bytes-need.bytes, left.files-need.files
		}
		kept = append(kept, name)
	}
	s.Aside = kept
	return nil
}

// room is an amount of bytes and files.
type room struct {
	bytes int64
	files int
}

// measure adds up what is below a path, and fails with errBudget when that exceeds left.
func (s *Snapshot) measure(ctx context.Context, name string, left room, all bool) (need room, err error) {
	top := filepath.Join(s.Source, filepath.FromSlash(name))
	err = filepath.WalkDir(top, func(_ string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return nil // not readable, so not copied either
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			need.bytes += info.Size()
		}
		if need.files++; !all && (need.bytes > left.bytes || need.files > left.files) {
			return errBudget
		}
		return nil
	})
	return need, err
}

// copyBelow copies a path and everything below it, except what is hidden.
func (s *Snapshot) copyBelow(ctx context.Context, l *listing, top string) error {
	from := filepath.Join(s.Source, filepath.FromSlash(top))
	return filepath.WalkDir(from, func(file string, d fs.DirEntry, err error) error {
		name, rerr := filepath.Rel(s.Source, file)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case rerr != nil:
			return rerr
		case slices.Contains(l.hidden, name) && d != nil && d.IsDir():
			return fs.SkipDir
		case slices.Contains(l.hidden, name) || errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, fs.ErrPermission):
			l.omit(name)
			return nil
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(filepath.Join(s.Dir, name), 0o755)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(s.Dir, name)), 0o755); err != nil {
			return err
		}
		switch err := s.copy(name); {
		case errors.Is(err, fs.ErrPermission):
			l.omit(name)
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist):
			return fmt.Errorf("copy %s: %w", name, err)
		}
		return nil
	})
}

//go:embed venv.sh
var mendVenv string

// mendEnvironment returns a command line that makes a copied virtual environment use the sandbox's Python.
func mendEnvironment(name string) string {
	return "set -- " + env.ShellQuote(name) + "\n" + strings.TrimSpace(mendVenv)
}
