package sandboxtest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/guest"
)

// below returns the paths of all files below a directory, sorted.
func (f *Fake) below(dir string) []string {
	var all []string
	for name := range f.files {
		if strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/") {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// List returns a directory's entries.
func (f *Fake) List(ctx context.Context, name string, o env.ListOptions) (env.Listing, error) {
	leave, err := f.enter(ctx, "list")
	if err != nil {
		return env.Listing{}, err
	}
	defer leave()
	dir := f.path(name)
	if !f.isDir(dir) {
		_, _, err := f.find(dir, true)
		if err == nil {
			err = fmt.Errorf("%s: %w", dir, guest.ErrNotDirectory)
		}
		return env.Listing{}, fmt.Errorf("list %w", err)
	}
	depth, limit := max(o.Depth, 1), o.Limit
	if limit <= 0 {
		limit = 10_000
	}
	entries := map[string]env.FileInfo{}
	for _, file := range f.below(dir) {
		parts := strings.Split(strings.TrimPrefix(file, strings.TrimSuffix(dir, "/")+"/"), "/")
		for i := range min(depth, len(parts)) {
			if strings.HasPrefix(parts[i], ".") && !o.Hidden {
				break
			}
			p := path.Join(dir, path.Join(parts[:i+1]...))
			if i < len(parts)-1 {
				entries[p] = env.FileInfo{Path: p, Kind: guest.KindDir, Mode: 0o755}
				continue
			}
			entries[p] = describe(p, f.files[p])
		}
	}
	l := env.Listing{}
	order := func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }
	for _, p := range slices.SortedFunc(maps.Keys(entries), order) {
		if len(l.Entries) == limit {
			l.Truncated = true
			break
		}
		e := entries[p]
		e.Version = ""
		l.Entries = append(l.Entries, e)
	}
	return l, nil
}

// Search returns the lines that contain a text.
func (f *Fake) Search(ctx context.Context, q env.Query) (env.Matches, error) {
	leave, err := f.enter(ctx, "search")
	if err != nil {
		return env.Matches{}, err
	}
	defer leave()
	term := q.Term
	if !q.Regexp {
		term = regexp.QuoteMeta(term)
	}
	re, err := regexp.Compile(term)
	if err != nil || q.Term == "" {
		return env.Matches{}, fmt.Errorf("search for %q: %w", q.Term, fs.ErrInvalid)
	}
	root := f.path(q.Path)
	paths := f.below(root)
	if target, _, err := f.find(root, true); err == nil {
		paths = []string{target}
	} else if !f.isDir(root) {
		return env.Matches{}, fmt.Errorf("search %w", err)
	}
	var m env.Matches
	for _, p := range paths {
		if p == root || f.searched(strings.TrimPrefix(p, root), q) && f.files[p].Target == "" {
			f.grep(&m, p, re, q)
		}
	}
	return m, nil
}

// searched reports whether a query is about the file at a path below its root.
func (f *Fake) searched(rel string, q env.Query) bool {
	for part := range strings.SplitSeq(strings.TrimPrefix(rel, "/"), "/") {
		if part == ".git" || strings.HasPrefix(part, ".") && !q.Hidden {
			return false
		}
	}
	return len(q.Names) == 0 || slices.ContainsFunc(q.Names, func(pattern string) bool {
		ok, _ := path.Match(pattern, path.Base(rel))
		return ok
	})
}

func (f *Fake) grep(m *env.Matches, p string, re *regexp.Regexp, q env.Query) {
	most, width := q.MaxMatches, q.MaxLine
	if most <= 0 {
		most = 1000
	}
	if width <= 0 {
		width = 400
	}
	data := f.files[p].Data
	if bytes.IndexByte(data[:min(len(data), 8<<10)], 0) >= 0 {
		m.Binary++
		return
	}
	before := m.Total
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSuffix(line, []byte("\n"))
		at := re.FindIndex(line)
		if at == nil {
			continue
		}
		if m.Total++; len(m.Matches) < most {
			from := max(0, min(at[0], len(line)-width))
			text := line[from:min(from+width, len(line))]
			m.Matches = append(m.Matches, env.Match{Path: p, Line: number, Text: bytes.Clone(text), Cut: len(text) < len(line)})
		}
	}
	if m.Total > before {
		m.Files++
	}
}

// Tree describes every file below root.
func (f *Fake) Tree(ctx context.Context, root string, o env.TreeOptions) ([]env.FileInfo, error) {
	leave, err := f.enter(ctx, "tree")
	if err != nil {
		return nil, err
	}
	defer leave()
	root = f.path(root)
	var all []env.FileInfo
	for _, p := range f.below(root) {
		rel := strings.TrimPrefix(strings.TrimPrefix(p, root), "/")
		if slices.Contains(strings.Split(rel, "/"), ".git") {
			continue
		}
		if o.Limit > 0 && len(all) == o.Limit {
			return nil, fmt.Errorf("tree %s: %w", root, guest.ErrTooLarge)
		}
		info := describe(p, f.files[p])
		info.Path = rel
		all = append(all, info)
	}
	return all, nil
}

// Unpack extracts regular files and symbolic links.
func (f *Fake) Unpack(ctx context.Context, dir string, stream io.Reader) error {
	archive := tar.NewReader(stream)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return f.Ping(ctx)
		}
		if err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
		name := path.Clean(h.Name)
		if path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") {
			return fmt.Errorf("unpack %q: %w", h.Name, fs.ErrInvalid)
		}
		switch h.Typeflag {
		case tar.TypeReg:
			f.Put(path.Join(f.path(dir), name), FakeFile{Data: data, Mode: fs.FileMode(h.Mode).Perm()})
		case tar.TypeSymlink:
			f.Put(path.Join(f.path(dir), name), FakeFile{Target: h.Linkname})
		case tar.TypeDir, tar.TypeXGlobalHeader:
		default:
			return fmt.Errorf("unpack %q: %w", h.Name, guest.ErrNotRegular)
		}
	}
}
