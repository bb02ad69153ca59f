package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/guest"
)

// longestPath is the longest path that Linux accepts, in bytes.
const longestPath = 4096

// path returns a path parameter. It resolves a relative path against the repository, and adds a note that says so.
func (p *params) path(sb Sandbox, key, reason string) (string, error) {
	v, err := p.required(key, reason)
	switch {
	case err != nil:
		return "", err
	case v == "":
		return "", tell("The parameter %s is empty: %s. Nothing was done.", key, reason)
	case strings.ContainsRune(v, 0) || len(v) > longestPath:
		return "", tell("Invalid %s parameter: it contains a NUL byte or is longer than %s characters. Nothing was "+
			"done.", key, count(longestPath))
	case path.IsAbs(v):
		return path.Clean(v), nil
	}
	full := path.Join(sb.Dir(), v)
	if p.quiet {
		return full, nil
	}
	p.note("the relative path %s was resolved to %s.", name(v), name(full))
	return full, nil
}

// explain turns a sandbox's error about a path into an observation. Infrastructure failures and observations are
// returned as they are.
func explain(ctx context.Context, sb Sandbox, p string, err error) error {
	if _, told := errors.AsType[*observation](err); told || env.IsInfrastructure(ctx, err) {
		return err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return tell("The path %s does not exist.%s", name(p), nearby(ctx, sb, p))
	case errors.Is(err, guest.ErrIsDirectory):
		return tell("%s is a directory, and only the view command can be used on directories.", name(p))
	case errors.Is(err, guest.ErrNotDirectory):
		return tell("%s: not a directory: a parent in the path is a file.", name(p))
	case errors.Is(err, guest.ErrNotRegular):
		return tell("%s is not a regular file (but a device, pipe or socket) and cannot be read or written.", name(p))
	case errors.Is(err, fs.ErrPermission):
		return tell("Permission denied: %s.", name(p))
	}
	text := shorten(strings.ReplaceAll(err.Error(), p, "it"), 500)
	return tell("%s: %s.", name(p), text)
}

// nearby suggests what the model may have meant by a path that does not exist.
func nearby(ctx context.Context, sb Sandbox, p string) string {
	if trimmed := strings.TrimSpace(p); trimmed != p {
		return " Remove the leading or trailing whitespace from the path."
	}
	if strings.Contains(p, "/~") {
		return " ~ is not expanded: use an absolute path."
	}
	dir := path.Dir(p)
	for {
		l, err := sb.List(ctx, dir, env.ListOptions{Hidden: true, Limit: 2_000})
		if err == nil {
			return " " + alternatives(p, dir, l)
		}
		if dir == "/" || !errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		dir = path.Dir(dir)
	}
}

// alternatives says which part of a path exists, and which names in the last existing directory are most similar to
// the missing one.
func alternatives(p, dir string, l env.Listing) string {
	missing, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(p, dir), "/"), "/")
	type candidate struct {
		name  string
		score float64
	}
	var all []candidate
	for _, e := range l.Entries {
		base := path.Base(e.Path)
		if s := likeness(strings.ToLower(base), strings.ToLower(missing)); s >= 0.4 {
			if e.Kind == guest.KindDir {
				base += "/"
			}
			all = append(all, candidate{base, s})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	text := fmt.Sprintf("%s exists, but does not contain %s.", name(dir), name(missing))
	if len(all) == 0 {
		return text
	}
	var names []string
	for _, c := range all[:min(len(all), 5)] {
		names = append(names, name(c.name))
	}
	return text + " Did you mean: " + strings.Join(names, ", ") + "?"
}

// likeness returns the Dice coefficient of the texts' byte pairs: 0 if they have none in common, 1 if all are the
// same.
func likeness(a, b string) float64 {
	if a == b {
		return 1
	}
	if len(a) < 2 || len(b) < 2 {
		return 0
	}
	pairs := make(map[[2]byte]int, len(a))
	for i := range len(a) - 1 {
		pairs[[2]byte{a[i], a[i+1]}]++
	}
	common := 0
	for i := range len(b) - 1 {
		if pair := [2]byte{b[i], b[i+1]}; pairs[pair] > 0 {
			pairs[pair]--
			common++
		}
	}
	return 2 * float64(common) / float64(len(a)+len(b)-2)
}
