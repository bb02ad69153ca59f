package mine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"deepswe/env"
	"deepswe/env/repo"
)

// Bounds limit what a candidate changes. Zero means the default.
type Bounds struct {
	// Files and Lines are of sources, Bytes of the patch without tests: 8, 300 and 50,000.
	Files, Lines, Bytes int
}

// Candidate is a commit that may become a task.
type Candidate struct {
	Commit
	// Sources is the change without tests and documentation, Tests that of tests and their data, as unified diffs.
	Sources, Tests string
	// Inline are the modules of tests within sources that it changes, by the paths of these.
	Inline map[string]string
	// Labels say what kind of commit it is.
	Labels map[string]string

	readers []string // the test files that may read the changed test data, if the commit adds to no tests
}

// TestFiles returns the test files that the commit adds or changes and that a runner would start. If it adds only to
// test data, they are the test files that may read the data.
func (c Candidate) TestFiles() []string {
	if len(c.readers) > 0 {
		return slices.Clone(c.readers)
	}
	var all []string
	for _, ch := range c.Changes {
		if ch.Kind == Test && ch.Status != 'D' && runs(ch.Path) {
			all = append(all, ch.Path)
		}
	}
	return all
}

// SourceFiles returns the sources that the commit changes.
func (c Candidate) SourceFiles() []string { return paths(c.Changes, Source) }

// Needs returns the commit whose manifests say what the tests need: the candidate's own where it changes them, and its
// base commit otherwise.
func (c Candidate) Needs() string {
	if len(paths(c.Changes, Environment)) > 0 {
		return c.Hash
	}
	return c.Base
}

// Subject returns the first line of the commit's message.
func (c Commit) Subject() string {
	subject, _, _ := strings.Cut(c.Message, "\n")
	return subject
}

// Language returns the language of most of the changed lines.
func (c Candidate) Language() string {
	lines := map[string]int{}
	best := ""
	for _, ch := range c.Changes {
		if ch.Kind == Source {
			l := languageOf(ch.Path)
			lines[l] += ch.Added + ch.Removed + 1
			if lines[l] > lines[best] {
				best = l
			}
		}
	}
	return best
}

// Reason says why a commit is no candidate, or a candidate no task. It is a short phrase, because reasons are counted.
type Reason string

// The reasons that the history itself gives.
const (
	Root        Reason = "the first commit, or the end of a shallow history"
	Bot         Reason = "made by a bot"
	Reverted    Reason = "a revert, or reverted later"
	Forwarded   Reason = "merges a whole branch into another one"
	NoTests     Reason = "changes no tests"
	NoSources   Reason = "changes no sources"
	OnlyRemoved Reason = "adds nothing to tests"
	TooLarge    Reason = "larger than the bounds"
	Submodule   Reason = "changes a submodule"
	BinaryFix   Reason = "changes a binary file"
	NotUTF8     Reason = "its change, or the name of one of its files, is not UTF-8"
	Formatting  Reason = "changes only layout or comments of sources"
	Repeated    Reason = "the same change as in a newer commit"
)

var (
	bot = env.Pattern(
		`(?i)\[bot\]|\b(dependabot|renovate|pre-commit-ci|github-actions|pyup-bot|greenkeeper|snyk)\b`)
	forward = env.Pattern(`(?i)^merge ((remote-tracking )?(branch|tag) )?'?([\w-]+/)?` +
		`(main|master|trunk|develop|stable|release[\w./-]*|v?\d+(\.[\dx]+)+|\d+-stable)\b'?`)
)

// Choose returns the candidates among commits, in their order, and how many of the others there are for each reason.
func Choose(ctx context.Context, dir string, commits []Commit, b Bounds) ([]Candidate, map[Reason]int, error) {
	later := reverts{}
	var chosen []Candidate
	reasons := map[Reason]int{}
	seen := map[string]bool{}
	for _, c := range commits {
		why := c.unfit(b, later.undo(c))
		if why == "" {
			candidate, reason, err := c.candidate(ctx, dir, b, seen)
			if err != nil {
				return nil, nil, err
			}
			if why = reason; why == "" {
				chosen = append(chosen, candidate)
			}
		}
		if why != "" {
			reasons[why]++
		}
	}
	return chosen, reasons, nil
}

// unfit returns the reason why a commit is no candidate, as far as that can be seen without its patch.
func (c Commit) unfit(b Bounds, undone bool) Reason {
	files, lines, moved := c.size()
	has := map[Kind]bool{}
	for _, ch := range c.Changes {
		has[ch.Kind] = true
	}
	elsewhere := c.mayInline() || len(c.data()) > 0
	for _, check := range []struct {
		unfit bool
		why   Reason
	}{
		{c.Base == "", Root},
		{bot().MatchString(c.Author), Bot},
		{revert().MatchString(c.Message) || undone, Reverted},
		{c.Parents > 1 && forward().MatchString(c.Message), Forwarded},
		{!has[Source], NoSources},
		{!has[Test] && !elsewhere, NoTests},
		{has[Test] && len(c.testsAddedTo()) == 0 && !elsewhere, OnlyRemoved},
		{files > cmp.Or(b.Files, 8) || lines > cmp.Or(b.Lines, 300) || lines == 0 && !moved, TooLarge},
		{slices.ContainsFunc(c.Changes, func(ch Change) bool { return ch.Mode == "160000" }), Submodule},
		{slices.ContainsFunc(c.Changes, func(ch Change) bool { return ch.Binary && ch.Kind == Source }), BinaryFix},
	} {
		if check.unfit {
			return check.why
		}
	}
	return ""
}

// testsAddedTo returns the test files that the commit adds lines to and that a runner would start.
func (c Commit) testsAddedTo() (names []string) {
	for _, ch := range c.Changes {
		if ch.Kind == Test && ch.Status != 'D' && runs(ch.Path) && ch.Added > 0 {
			names = append(names, ch.Path)
		}
	}
	return names
}

// size counts the sources that the commit changes, and their changed lines. moved is set if it moves one of them.
func (c Commit) size() (files, lines int, moved bool) {
	for _, ch := range c.Changes {
		switch {
		case ch.Moved:
			moved = true
		case ch.Kind == Source:
			files, lines = files+1, lines+ch.Added+ch.Removed
		}
	}
	return files, lines, moved
}

// fixKinds are the files that the reference solution consists of.
var fixKinds = []Kind{Source, Environment, Generated, Example, Other}

// allKinds are those and the files of tests.
func allKinds() []Kind { return append(slices.Clone(fixKinds), Test, Data) }

// candidate reads the commit's patch. seen are the fingerprints of earlier candidates.
func (c Commit) candidate(
	ctx context.Context, dir string, b Bounds, seen map[string]bool,
) (_ Candidate, _ Reason, err error) {
	diff := func(kinds []Kind, options ...string) string {
		names := paths(c.Changes, kinds...)
		if len(names) == 0 || err != nil {
			return ""
		}
		out, failed := difference(ctx, dir, c.Base, c.Hash, names, options...)
		err = failed
		return string(out)
	}
	found := Candidate{Commit: c, Sources: diff(fixKinds), Tests: diff([]Kind{Test, Data})}
	whole := diff([]Kind{Source}, "--unified=1000000")
	if err == nil && c.mayInline() {
		err = found.takeApart(ctx, dir)
	}
	tested := len(found.Inline) > 0 || len(c.testsAddedTo()) > 0
	if err == nil && len(found.Inline) == 0 {
		err = found.findReaders(ctx, dir)
		tested = tested || len(found.readers) > 0
	}
	if err != nil {
		return Candidate{}, "", fmt.Errorf("read commit %s: %w", c.Hash, err)
	}
	print := fingerprint(found.Sources)
	switch {
	case !tested:
		return Candidate{}, NoTests, nil
	case found.Sources == "":
		return Candidate{}, NoSources, nil
	case sameCode(whole):
		return Candidate{}, Formatting, nil
	case len(found.Sources) > cmp.Or(b.Bytes, 50_000):
		return Candidate{}, TooLarge, nil
	case seen[print]:
		return Candidate{}, Repeated, nil
	case !utf8.ValidString(found.Sources + strings.Join(paths(c.Changes, allKinds()...), "")):
		return Candidate{}, NotUTF8, nil // JSON, as which tasks are written, has no other texts
	}
	seen[print] = true
	if found.Message, err = c.said(ctx, dir); err != nil {
		return Candidate{}, "", fmt.Errorf("read what commit %s merges: %w", c.Hash, err)
	}
	found.Labels = found.labels()
	return found, "", nil
}

// difference returns the patch from one commit to another for some files.
func difference(ctx context.Context, dir, from, to string, names []string, options ...string) ([]byte, error) {
	args := append([]string{"--literal-pathspecs", "diff-tree", "-p", "--binary", "--no-renames", "--no-ext-diff",
		"--no-textconv", "--no-color", "--full-index"}, options...)
	var patch []byte
	// A command line has room for only so many names, and diff-tree reads them from nowhere else.
	for some := range slices.Chunk(names, 1000) {
		part, err := repo.Read(ctx, dir, slices.Concat(args, []string{from, to, "--"}, some)...)
		if err != nil {
			return nil, err
		}
		patch = append(patch, part...)
	}
	return patch, nil
}

// fingerprint returns the same hash for patches that change the same lines, wherever they are.
func fingerprint(patch string) string {
	h := sha256.New()
	for line := range strings.Lines(patch) {
		if strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
			fmt.Fprintln(h, strings.Join(strings.Fields(line), " "))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

var (
	fixWord = env.Pattern(
		`(?i)\b(fix(e[sd])?|bug|regression|crash(es)?|wrong|incorrect(ly)?|broken|fail(s|ed|ure)?)\b`)
	linked = env.Pattern(`(?i)\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?\s+(?:[\w./-]+)?#(\d+)`)
)

// Issue returns the number of the issue that a commit says to have fixed; empty if it names none.
func (c Commit) Issue() string {
	if m := linked().FindStringSubmatch(c.Message); m != nil {
		return m[1]
	}
	return ""
}

// labels say what can be seen of the commit. None of them is a condition.
func (c Candidate) labels() map[string]string {
	hunks := strings.Count(c.Sources, "\n@@ ")
	files, lines, _ := c.size()
	size := "small"
	if files > 3 || lines > 100 {
		size = "large"
	} else if lines > 20 {
		size = "medium"
	}
	labels := map[string]string{
		"commit": c.Hash, "date": c.Time.Format("2006-01-02"), "language": c.Language(), "size": size,
		"files": strconv.Itoa(files), "lines": strconv.Itoa(lines), "hunks": strconv.Itoa(hunks),
	}
	if fixWord().MatchString(c.Message) {
		labels["fix"] = "yes"
	}
	if issue := c.Issue(); issue != "" {
		labels["issue"] = issue
	}
	if c.Parents > 1 {
		labels["merge"] = "yes"
	}
	if len(c.Inline) > 0 {
		labels["inline"] = "yes"
	}
	if len(c.readers) > 0 {
		labels["tests"] = "data"
	}
	if len(paths(c.Changes, Environment)) > 0 {
		labels["environment"] = "changed"
	}
	return labels
}

// NewLines returns the lines that a candidate adds to sources, without the space around them, if they have at least
// shortest bytes and occur nowhere in its base commit.
func (b Builder) NewLines(ctx context.Context, c Candidate, shortest int) ([]string, error) {
	var lines []string
	for line := range added(c.Sources) {
		if text := strings.TrimSpace(line); len(text) >= shortest && !slices.Contains(lines, text) {
			lines = append(lines, text)
		}
	}
	if len(lines) == 0 {
		return nil, nil
	}
	args := []string{"grep", "-h", "-I", "-F"}
	for _, line := range lines {
		args = append(args, "-e", line)
	}
	there, err := repo.Read(ctx, b.Repository, append(args, c.Base)...)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	// git ends with an error where it finds none of them.
	return slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(string(there), line) }), nil
}
