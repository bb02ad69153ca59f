//go:build linux

package inside

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env/guest"
)

type found struct {
	path string
	grep
	unreadable bool
}

// search sends the matching lines, file by file in path order.
func (s *server) search(c *guest.Call, root string, q guest.Query) (guest.Message, error) {
	pattern, err := newPattern(q)
	if err == nil && q.Term == "" {
		err = fs.ErrInvalid
	}
	for _, name := range q.Names {
		if _, bad := path.Match(name, ""); bad != nil {
			err = bad
		}
	}
	if err != nil {
		return nil, fmt.Errorf("search for %q: %w", q.Term, &invalid{err})
	}
	var totals guest.Matches
	s.parallel.widen()
	defer s.parallel.narrow()
	searching := fan[string, []found]{
		ctx: c.Context(), helpers: s.helpers,
		work: func(paths []string) []found {
			all := make([]found, len(paths))
			in := bufio.NewReaderSize(nil, 64<<10)
			for i, p := range paths {
				g := grep{ctx: c.Context(), pattern: pattern, most: q.MaxMatches, width: q.MaxLine, in: in}
				all[i] = found{path: p, grep: g}
				all[i].unreadable = searchFile(&all[i]) != nil
			}
			return all
		},
		deliver: func(all []found) error { return tally(c, &totals, all, q.MaxMatches) },
	}
	root = filepath.Clean(root)
	info, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		err = walkQuery(c, root, q, &totals, func(p string) error { return searching.add(p, groupWeight/groupFiles) })
	} else if err = regular(root, info); err == nil {
		err = searching.add(root, 0)
	}
	if err := searching.finish(err); err != nil {
		return nil, err
	}
	return &totals, nil
}

// walkQuery calls add for every file that a query covers.
func walkQuery(c *guest.Call, root string, q guest.Query, totals *guest.Matches, add func(path string) error) error {
	hidden := func(name string) bool { return !q.Hidden && strings.HasPrefix(name, ".") }
	skip := pathSet(q.Skip)
	walk := walker{
		ctx:   c.Context(),
		enter: func(path, name string) bool { return name != ".git" && !hidden(name) && !skip[path] },
		file: func(p string, entry os.DirEntry) error {
			if !entry.Type().IsRegular() || hidden(entry.Name()) || !matchName(q.Names, entry.Name()) {
				return nil
			}
			return add(p)
		},
		broken: func(string, error) error {
			totals.Unreadable++
			return nil
		},
	}
	return walk.walk(root)
}

func matchName(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, name)
		return ok
	})
}

func searchFile(f *found) error {
	file, info, err := openRegular(f.path, false)
	if err != nil {
		return err
	}
	defer file.Close()
	return f.search(file, info.Size())
}

// tally counts all matches, and sends them up to the limit.
func tally(c *guest.Call, totals *guest.Matches, all []found, most int) error {
	if err := c.Context().Err(); err != nil {
		return err
	}
	for i := range all {
		f := &all[i]
		room := max(most-totals.Total, 0)
		totals.Total += f.total
		if f.total > 0 {
			totals.Files++
		}
		if f.binary {
			totals.Binary++
		}
		if f.unreadable {
			totals.Unreadable++
		}
		for _, m := range f.matches[:min(room, len(f.matches))] {
			m.Path = f.path
			if err := c.Add(&m); err != nil {
				return err
			}
		}
	}
	return nil
}

// invalid marks a request that can never succeed.
type invalid struct{ err error }

func (i *invalid) Error() string        { return i.err.Error() }
func (i *invalid) Unwrap() error        { return i.err }
func (i *invalid) Is(target error) bool { return target == fs.ErrInvalid }
