package mine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	history "deepswe/env/mine"
)

// shortestShown is the minimum length of a line that is unlikely to be written twice by chance. If a change has no
// line as long as that, lines of at least shortestOwn are looked for, but only in other versions of the project.
const (
	shortestShown = 20
	shortestOwn   = 8
)

// searchTimeout limits the search for copies of a change.
const searchTimeout = 2 * time.Minute

// search prints those of the lines on its input that occur in the files that /tmp/outside lists, or in those files of
// the repository's directory that match. It also prints the archives among these files.
const search = `export LC_ALL=C; cat >/tmp/lines
{ cat /tmp/outside; find %s -path %s/.git -prune -o -type f \( %s \) -print0 2>/dev/null; } >/tmp/files
tr '\0' '\n' </tmp/files | grep -E '\.(%s)$' | sort -u | sed 's/^/archive /'
xargs -0 -r grep -oIHF -f /tmp/lines </tmp/files 2>/dev/null | sort -u | sed 's/^/copy /'`

// libraries are the directories in which package managers install what a program loads, a directory for each package.
var libraries = []string{"site-packages", "dist-packages", "node_modules", "gems"}

// version matches the end of a name that the modules of Go have, unlike the scope @vitest.
var version = env.Pattern(`@v(?:\d|$)`)

// installedAt returns the directory of the installed package that a file belongs to; empty if it is in none.
func installedAt(file string) string {
	parts := strings.Split(file, "/")
	for i := len(parts) - 1; i > 0; i-- {
		if i+1 < len(parts) && version().MatchString(parts[i]) { // a module of Go, or all archives of one
			return strings.Join(parts[:i+1], "/")
		}
		if !slices.Contains(libraries, parts[i-1]) {
			continue
		}
		end := i + 1
		if strings.HasPrefix(parts[i], "@") {
			end++
		}
		if end < len(parts) {
			return strings.Join(parts[:end], "/")
		}
	}
	return ""
}

// archivedAt returns the directory to hide for an archive of a package with one of the names; empty if other packages
// need what is there.
func archivedAt(file string, names []string) string {
	dir := path.Dir(file)
	plain := strings.NewReplacer("_", "-", ".", "-").Replace
	for _, part := range strings.Split(dir, "/") {
		if slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(plain(part), plain(name)) }) {
			return dir
		}
	}
	if path.Ext(file) == ".gem" && path.Base(dir) == "cache" { // of gems that are installed already
		return dir
	}
	return installedAt(file)
}

// mostHidden is the maximum number of directories that a task hides.
const mostHidden = 16

// hide adds the installed packages that contain a copy of the change to what the draft's task hides. It returns the
// path of a file with a copy that cannot be hidden, or an empty string.
func (m *Miner) hide(ctx context.Context, c history.Candidate, d *history.Draft) (string, error) {
	lines, err := m.Builder.NewLines(ctx, c, shortestShown)
	files := c.SourceFiles()
	if err == nil && len(lines) == 0 {
		files = nil
		lines, err = m.Builder.NewLines(ctx, c, shortestOwn)
	}
	if err != nil || len(lines) == 0 {
		return "", err
	}
	t, names := &d.Task, d.Names
	if !slices.Contains(names, m.Builder.Name) {
		names = append(names, m.Builder.Name)
	}
	for {
		file, dir, err := m.exposed(ctx, *t, files, lines, names, d.Copies)
		if err != nil {
			return "", fmt.Errorf("look for copies of the change: %w", err)
		}
		if file == "" {
			return "", nil
		}
		shown := func(name string) bool { return strings.HasPrefix(dir, path.Join(t.Dir, name)+"/") }
		own := strings.HasPrefix(dir, t.Dir+"/") && !slices.ContainsFunc(t.Shows, shown)
		if dir == "" || own || slices.Contains(t.Hides, dir) || len(t.Hides) >= mostHidden {
			return file, nil
		}
		t.Hides = append(t.Hides, dir)
	}
}

// exposed returns the path of a file in the sandbox of a task that is a copy of the change, and the directory to hide;
// both are empty if there is none. It looks at packages with one of the names and at files that are named like one of
// the given ones. Packages that one of the patterns matches are the project itself.
func (m *Miner) exposed(
	ctx context.Context, t env.Task, files, lines, names, own []string,
) (file, dir string, err error) {
	s := t.Spec()
	s.Run, s.Prepare, s.Grading = m.name(), t.Prepare, true
	sb, err := m.Provider.Start(ctx, s)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, sb.Close(context.WithoutCancel(ctx))) }()
	matches, all, err := m.similar(ctx, sb, t, files, lines, names)
	if err != nil {
		return "", "", err
	}
	if file = copyIn(matches, len(lines), own); file != "" {
		return file, installedAt(file), nil
	}
	if file, err = unpack(ctx, sb, all, lines); err != nil || file == "" {
		return "", "", err
	}
	return file, archivedAt(file, names), nil
}

// similar returns the lines that files in a task's sandbox contain, as file:line and sorted by file, and the archives
// to search.
func (m *Miner) similar(
	ctx context.Context, sb env.Sandbox, t env.Task, files, lines, names []string,
) (matches, all []string, err error) {
	o, err := m.outside(ctx, sb, t, names)
	if err != nil {
		return nil, nil, err
	}
	list := []byte(strings.Join(append(o.like(files), ""), "\x00"))
	if _, err := sb.Write(ctx, "/tmp/outside", list, env.WriteOptions{}); err != nil {
		return nil, nil, err
	}
	matching := ofProject(names)
	for _, name := range bases(files) {
		matching += " -o -name " + env.ShellQuote(name) + sourceSize
	}
	dir := env.ShellQuote(t.Dir)
	output, err := printed(ctx, sb, env.Command{
		Line:    fmt.Sprintf(search, dir, dir, matching, strings.ReplaceAll(archives, " ", "|")),
		Stdin:   []byte(strings.Join(lines, "\n") + "\n"),
		Timeout: searchTimeout,
	})
	for line := range strings.Lines(output) {
		kind, found, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch file, _, _ := strings.Cut(found, ":"); {
		case kind != "copy":
			all = append(all, found)
		case len(lines) == 1 && !belongs(file, names): // super().__init__(message) is in an errors.py by chance
		case len(files) > 0 || installedAt(file) != "": // short lines are in other files by chance
			matches = append(matches, found)
		}
	}
	return matches, all, err
}

// belongs reports whether a file is below a directory with one of the names, or has such a name itself.
func belongs(file string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		in := func(after string) bool { return strings.Contains(file, "/"+name+after) }
		return in("/") || in("@") || in("-") || in(".")
	})
}

// copyIn returns the path of a file with a copy of a change of n lines; empty if there is none. A copy has at least
// half of the lines, or one of them if it is in a package that one of the patterns matches: the project itself has none
// by chance, and a build of it may have changed the others. The files of an installed package count together, and all
// others each by itself. The matches have the form file:line and are sorted by file.
func copyIn(matches []string, n int, own []string) string {
	first, has := map[string]string{}, map[string]map[string]bool{}
	for _, found := range matches {
		file, line, _ := strings.Cut(found, ":")
		in := cmp.Or(installedAt(file), file)
		if has[in] == nil {
			first[in], has[in] = file, map[string]bool{}
		}
		is := func(pattern string) bool { return strings.HasSuffix(in, strings.TrimPrefix(pattern, "*")) }
		if has[in][line] = true; 2*len(has[in]) >= n || slices.ContainsFunc(own, is) {
			return first[in]
		}
	}
	return ""
}

// unpack returns the first of the archives in a sandbox that holds a copy of a change or exceeds the limits; empty if
// there is none.
func unpack(ctx context.Context, sb env.Sandbox, all, lines []string) (string, error) {
	size := 0
	for i, file := range all {
		data, info, err := sb.Read(ctx, file, env.ReadOptions{Limit: largestArchive})
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			continue // as for the agent
		}
		if err != nil {
			return "", fmt.Errorf("read %s: %w", file, err)
		}
		if size += len(data); i >= mostArchives || info.Size > largestArchive || size > mostArchived ||
			holdsCopy(data, lines) {
			return file, nil
		}
	}
	return "", nil
}
