package mine

import (
	"context"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/repo"
)

// Rust has tests of a module at the end of its source. A commit that changes both there is taken apart: the module of
// tests is replaced when the tests run, so that the agent's file keeps whatever else it has.

// testModule matches a module of tests, as rustfmt lays it out.
var testModule = env.Pattern(`(?ms)^#\[cfg\(test\)\]\n(?:#\[[^\n]*\]\n)*(?:pub )?mod \w+ \{\n.*?^\}\n?`)

// withoutModule prints a source without its module of tests.
const withoutModule = `awk 'inside { if (/^}/) inside = 0; next }
held != "" && /^(pub )?mod .*\{$/ { inside = 1; held = ""; next }
held != "" && /^#\[/ { held = held "\n" $0; next }
held != "" { print held; held = "" }
/^#\[cfg\(test\)\]$/ { held = $0; next }
{ print }' `

// mayInline reports whether the commit may change tests within sources.
func (c Commit) mayInline() bool { return slices.ContainsFunc(c.Changes, Change.mayInline) }

func (ch Change) mayInline() bool {
	return ch.Kind == Source && path.Ext(ch.Path) == ".rs" && ch.Status != 'D' && ch.Mode != "120000"
}

// takeApart moves the changes of tests within sources from the candidate's sources to its tests.
func (c *Candidate) takeApart(ctx context.Context, dir string) error {
	codes := map[string][]byte{}
	c.Inline = map[string]string{}
	for _, ch := range c.Changes {
		if !ch.mayInline() {
			continue
		}
		after, err := repo.Blob(ctx, dir, c.Hash+":"+ch.Path)
		var before []byte
		if err == nil && ch.Status != 'A' {
			before, err = repo.Blob(ctx, dir, c.Base+":"+ch.Path)
		}
		if err != nil {
			return err
		}
		if code, tests, ok := apart(string(before), string(after)); ok {
			codes[ch.Path], c.Inline[ch.Path] = []byte(code), tests
		}
	}
	if len(codes) == 0 {
		return nil
	}
	scratch, err := disk.MakeScratch("", "mine")
	if err != nil {
		return err
	}
	defer disk.RemoveScratch(scratch)
	beside := filepath.Join(scratch, "repo.git") // the user's repository gets no objects
	if err := repo.Beside(ctx, dir, beside); err != nil {
		return err
	}
	tree, err := repo.WithFiles(ctx, beside, c.Hash, codes)
	if err != nil {
		return err
	}
	sources, err := difference(ctx, beside, c.Base, tree, paths(c.Changes, fixKinds...))
	if err != nil {
		return err
	}
	tests, err := difference(ctx, beside, tree, c.Hash, slices.Sorted(maps.Keys(codes)))
	if err != nil {
		return err
	}
	// The trees have the same files of tests, whose own difference is known.
	c.Sources, c.Tests = string(sources), c.Tests+string(tests)
	return nil
}

// apart returns a source with the tests that it had before, and its new module of tests. ok is false if the tests are
// not changed, or cannot be told from the rest.
func apart(before, after string) (code, tests string, ok bool) {
	old, now := testModule().FindAllStringIndex(before, -1), testModule().FindAllStringIndex(after, -1)
	if len(old) > 1 || len(now) != 1 {
		return "", "", false
	}
	had := ""
	if len(old) == 1 {
		had = before[old[0][0]:old[0][1]]
	}
	tests = after[now[0][0]:now[0][1]]
	return after[:now[0][0]] + had + after[now[0][1]:], tests, tests != had
}

// modulesDir is where, in the repository, the modules of tests lie that come with a task. Cargo does not look there.
const modulesDir = ".modules"

// inline adds the candidate's modules of tests to the files of its tests, and returns command lines that put them into
// its sources.
func (c Candidate) inline(files map[string]string) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Inline)) {
		module := path.Join(modulesDir, name)
		files[module] = c.Inline[name]
		source, code := env.ShellQuote(name), env.ShellQuote(module+".code")
		lines = append(lines, fmt.Sprintf("test ! -f %s || { %s%s >%s && cat %s %s >%s; }", source,
			withoutModule, source, code, code, env.ShellQuote(module), source))
	}
	return lines
}

var (
	feature = env.Pattern(`\bfeature\s*=\s*"([\w.+-]+)"`)
	negated = env.Pattern(`\bnot\([^()]*\)`)
)

// features returns the features of Rust that added lines of the candidate's tests are behind, or whole files of them.
func (c Candidate) features(files map[string]string) (names []string) {
	var lines strings.Builder
	for line := range strings.Lines(c.Tests) {
		if strings.HasPrefix(line, "+") {
			lines.WriteString(line)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for line := range strings.Lines(files[name]) {
			if strings.HasPrefix(line, "#![cfg(") && path.Ext(name) == ".rs" {
				lines.WriteString(line)
			}
		}
	}
	for _, m := range feature().FindAllStringSubmatch(negated().ReplaceAllString(lines.String(), ""), -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}
