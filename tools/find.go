package tools

import (
	"context"
	_ "embed"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"deepswe/env"
	"deepswe/env/guest"
)

//go:embed find_files.md
var findDescription string

//go:embed find_files.json
var findSchema string

const (
	mostFound   = 200     // paths to list
	mostListed  = 200_000 // files and directories to check
	deepest     = 100     // levels of directories
	longestGlob = 1_000   // bytes of a pattern
)

func findFiles(ctx context.Context, sb Sandbox, c Call) (Result, error) {
	p, err := newParams("find_files", c.Args, "pattern", "path")
	if err != nil {
		return Result{}, err
	}
	pattern, err := p.required("pattern", "the glob pattern, for example *_test.go")
	if err != nil {
		return Result{}, err
	}
	dir := sb.Dir()
	if v, _ := p.optional("path"); !absent(v) {
		if dir, err = p.path(sb, "path", "the directory to look in"); err != nil {
			return Result{}, err
		}
	}
	pattern = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(pattern), dir+"/"), "./")
	match, err := glob(pattern)
	if err != nil {
		return Result{}, err
	}
	hidden := strings.HasPrefix(pattern, ".") || strings.Contains(pattern, "/.")
	all, err := sb.List(ctx, dir, env.ListOptions{Depth: deepest, Hidden: hidden, Limit: mostListed})
	if err != nil {
		return Result{}, explain(ctx, sb, dir, err)
	}
	var b strings.Builder
	n, shown := 0, 0
	for _, e := range all.Entries {
		below := strings.TrimPrefix(strings.TrimPrefix(e.Path, dir), "/")
		subject := below
		if !strings.Contains(pattern, "/") {
			subject = path.Base(below)
		}
		if e.Kind == guest.KindDir || strings.HasPrefix(below, ".git/") || !match.MatchString(subject) {
			continue
		}
		n++
		if line := name(path.Join(dir, below)) + "\n"; n <= mostFound && b.Len()+len(line) <= maxChars {
			b.WriteString(line)
			shown++
		}
	}
	if n == 0 {
		return Result{Output: fmt.Sprintf("No files match %s in %s.", quote(pattern), name(dir)) +
			unlisted(all) + p.remarks("find_files")}, nil
	}
	out := fmt.Sprintf("Found %s:\n%s", plural(n, "file"), strings.TrimSuffix(b.String(), "\n"))
	if shown < n {
		out += fmt.Sprintf("\n… and %s more. Use a longer pattern, or a subdirectory as path.", count(n-shown))
	}
	return Result{Output: out + unlisted(all) + p.remarks("find_files")}, nil
}

func unlisted(l env.Listing) string {
	if !l.Truncated {
		return ""
	}
	return fmt.Sprintf("\nNOTE: only the first %s files and directories were looked at. Use a subdirectory as path.",
		count(mostListed))
}

// glob compiles a pattern: * and ? match within a name, ** matches across directories, {a,b} matches either
// alternative.
func glob(pattern string) (*regexp.Regexp, error) {
	if pattern == "" || len(pattern) > longestGlob || !utf8.ValidString(pattern) {
		return nil, tell("pattern must be text of 1 to %s characters. Nothing was done.", count(longestGlob))
	}
	var b strings.Builder
	depth := 0
	for rest := pattern; rest != ""; {
		c, n := utf8.DecodeRuneInString(rest)
		part := rest[:n]
		switch {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString("(?:.*/)?")
			n = len("**/")
		case strings.HasPrefix(rest, "**"):
			b.WriteString(".*")
			n = len("**")
		case c == '*':
			b.WriteString("[^/]*")
		case c == '?':
			b.WriteString("[^/]")
		case c == '{':
			b.WriteString("(?:")
			depth++
		case c == '}' && depth > 0:
			b.WriteString(")")
			depth--
		case c == ',' && depth > 0:
			b.WriteString("|")
		default:
			b.WriteString(regexp.QuoteMeta(part))
		}
		rest = rest[n:]
	}
	if depth > 0 {
		return nil, tell("The pattern %s has a { without }. Nothing was done.", quote(pattern))
	}
	re, err := regexp.Compile("(?s)^(?:" + b.String() + ")$")
	if err != nil {
		return nil, tell("Invalid pattern %s. Nothing was done.", quote(pattern))
	}
	return re, nil
}
