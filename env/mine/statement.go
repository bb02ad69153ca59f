package mine

import (
	"context"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/repo"
)

// Unsaid is the reason why a candidate has no statement.
const Unsaid Reason = "nothing says what is wrong: its message is too short, and there is no other text"

// leastWords is the number of words below which a text says too little.
const leastWords = 4

var (
	mergeLine    = env.Pattern(`(?i)^merge (pull request|branch|remote-tracking branch|tag|commit|pr)\b`)
	conventional = env.Pattern(
		`(?i)^(fix|feat|feature|bug|bugfix|perf|refactor|chore|tests?|docs|style|build|ci)(\([^)]*\))?!?:\s*`)
	trailer   = env.Pattern(`(?i)^[a-z][a-z-]+-by: |^(change-id|cc|see-also|pr-url|refs?|cherry-picked-from): ?`)
	cherry    = env.Pattern(`(?i)\(?cherry[- ]picked from commit [0-9a-f]+\)?`)
	address   = env.Pattern(`\bhttps?://\S+`)
	reference = env.Pattern(`(?i)\(?\b(?:(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?|see|refs?|issue|pr|gh)[:\s-]*)?` +
		`(?:[\w.-]+/[\w.-]+)?#\d+\)?|\(#\d+\)|#\d+|\bGH-\d+\b`)
	hash    = env.Pattern(`\b[0-9a-f]{7,64}\b`)
	digit   = env.Pattern(`\d`)
	spaces  = env.Pattern(`[ \t]{2,}`)
	blanks  = env.Pattern(`\n{3,}`)
	noWords = env.Pattern(`^\W*$`)
	// filler matches what is left of a line that only refers to something.
	filler = env.Pattern(`(?i)^\W*(?:(?:see|also|and|or|in|of|for|more|details?|info|information|from|at|the|this|that|` +
		`since|by|issues?|pr|pull|requests?|fix(?:e[sd])?|close[sd]?|resolve[sd]?|discussion|commits?)\b\W*)+$`)
	// dangling matches the end of such a line after other words.
	dangling = env.Pattern(`(?i)[\s,;:(]*\b(?:as )?(?:described|discussed|documented|explained|mentioned|reported|shown|` +
		`suggested) (?:in|at|on|by|here)\W*$`)
	// named matches the names of tests in their sources: functions, and descriptions of some words. Rust and Java mark
	// tests otherwise than by a name, so the second group may be any function there.
	named = env.Pattern(`\b(?:def|func|fn|void|function|class)\s+(test\w*|Test\w*|\w+Tests?(?:Case)?\b)|` +
		`\b(?:fn|void)\s+(\w*[a-z0-9](?:_|[A-Z])\w*)|` +
		`\b(?:it|test|describe|context|specify|should)\b\s*\(?\s*(?:'([^'\n]+ [^'\n]+)'|"([^"\n]+ [^"\n]+)"|` +
		`\x60([^\x60\n]+ [^\x60\n]+)\x60)`)
)

// Text is what may become a statement, and where it comes from.
type Text struct{ From, Body string }

// The values of Text.From.
const (
	FromIssue   = "issue"
	FromModel   = "model"
	FromMessage = "message"
)

// Statement returns the statement of a task, which is the first of the texts that says enough, without what gives the
// change away, and where it is from. symptoms are lines that the tests print before the change. They complete a text
// that says little; so do the signatures of what the tests call.
func (c Candidate) Statement(texts []Text, symptoms []string) (statement, from string, why Reason) {
	secrets, names := c.secrets(), c.Interface()
	for _, text := range texts {
		said := clean(text.Body, secrets)
		words := len(strings.Fields(said))
		shown := clean(strings.Join(symptoms, "\n"), secrets)
		completed := words > 0 && shown != "" || words > 1 && len(names) > 0
		if words < leastWords && (text.From != FromMessage || !completed) {
			continue
		}
		if from = text.From; words < fewWords && shown != "" {
			said += "\n\nWhat happens now:\n\n    " + strings.ReplaceAll(shown, "\n", "\n    ")
			from += " and tests"
		}
		if len(names) > 0 {
			said += "\n\nThese are called by name:\n\n    " + strings.Join(names, "\n    ")
		}
		return said + "\n", from, ""
	}
	return "", "", Unsaid
}

// fewWords is the number of words below which a text is completed by what the tests print.
const fewWords = 40

// said returns the commit's message. Where that of a merge says too little, the messages of the commits that it merges
// follow, the oldest first, as far as they change its sources.
func (c Commit) said(ctx context.Context, dir string) (string, error) {
	if c.Parents < 2 || len(strings.Fields(clean(c.Message, nil))) >= leastWords {
		return c.Message, nil
	}
	out, err := repo.Read(ctx, dir, append([]string{"--literal-pathspecs", "log", "--no-merges", "--reverse", "-z",
		"--encoding=UTF-8", "--format=tformat:%B", c.Base + ".." + c.Hash, "--"}, paths(c.Changes, Source)...)...)
	all := []string{c.Message}
	for message := range strings.SplitSeq(strings.ToValidUTF8(string(out), "\uFFFD"), "\x00") {
		message = conventional().ReplaceAllString(strings.TrimSpace(message), "")
		if message != "" {
			all = append(all, message)
		}
	}
	return strings.Join(all, "\n\n"), err
}

// clean returns a text without what refers to the change: its line in the history, the discussion of it, and every line
// that contains a secret.
func clean(text string, secrets []string) string {
	var kept []string
	for i, line := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		if i == 0 && mergeLine().MatchString(line) || trailer().MatchString(line) ||
			len(kept) == 0 && noWords().MatchString(line) {
			continue
		}
		if len(kept) == 0 {
			line = conventional().ReplaceAllString(line, "")
		}
		whole := line
		line = cherry().ReplaceAllString(line, "")
		line = address().ReplaceAllString(line, "")
		line = reference().ReplaceAllString(line, "")
		line = hash().ReplaceAllStringFunc(line, func(word string) string {
			if digit().MatchString(word) {
				return ""
			}
			return word
		})
		if line != whole {
			line = dangling().ReplaceAllString(filler().ReplaceAllString(line, ""), "")
		}
		if slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(line, s) }) {
			continue
		}
		line = strings.TrimRight(line, " \t")
		if indent := len(line) - len(strings.TrimLeft(line, " \t")); indent < 4 {
			line = line[:indent] + spaces().ReplaceAllString(line[indent:], " ")
		}
		if noWords().MatchString(line) {
			line = ""
		}
		kept = append(kept, line)
	}
	return strings.TrimSpace(blanks().ReplaceAllString(strings.Join(kept, "\n"), "\n\n"))
}

// definitions match lines that define a name: the name is the last group that matches.
var definitions = env.Patterns(
	`^func (?:\([^)]*\) )?(\w+)[\[(]`,
	`^type (\w+) `,
	`^\s*(?:async )?def (\w+)\(`,
	`^\s*class (\w+)\b`,
	`^\s*(?:export )?(?:default )?(?:async )?function\*? (\w+)\(`,
	`^\s*export (?:const|let|class|type|interface|enum) (\w+)\b`,
	`^\s*pub(?:\([a-z]+\))? (?:async |const |unsafe )*(?:fn|struct|enum|trait) (\w+)`,
	`^\s*public (?:[\w<>\[\], ?]+ )?(\w+)\(`,
)

// Interface returns the definitions of what the tests of the commit call by name and only its change defines, without
// their bodies.
func (c Candidate) Interface() (signatures []string) {
	for _, d := range c.defines() {
		if d.called && !strings.HasPrefix(d.name, "_") {
			signatures = append(signatures, d.signature)
		}
	}
	return signatures
}

// definition is a definition that only the change has.
type definition struct {
	name, signature string
	// known is set if the same name was defined before, called if lines that the commit adds to tests have the name.
	known, called bool
}

// defines returns the definitions that the change adds and that its removed and context lines do not have as well.
func (c Candidate) defines() (all []definition) {
	before, called := map[string]bool{}, map[string]bool{}
	for line := range added(c.Tests) {
		for _, name := range word().FindAllString(line, -1) {
			called[name] = true
		}
	}
	lines := slices.Collect(strings.Lines(c.Sources))
	for _, plus := range []bool{false, true} {
		for i, line := range lines {
			name, signature := defined(lines[i:])
			switch {
			case name == "" || strings.HasPrefix(line, "+") != plus || before[signature]:
				continue
			case plus:
				all = append(all, definition{name, signature, before[name], called[name]})
			default:
				before[name] = true
			}
			before[signature] = true
		}
	}
	return all
}

// defined returns the name that the first of a patch's lines defines, and the line without the body or the value. What
// is in brackets may go on in the next lines.
func defined(lines []string) (name, signature string) {
	text := strings.TrimRight(lines[0][1:], "\r\n")
	for _, d := range definitions() {
		m := d.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		signature, open := head(text)
		for _, next := range lines[1:min(len(lines), longestSignature)] {
			if !open || next[0] != lines[0][0] && next[0] != ' ' {
				break
			}
			text += " " + strings.TrimSpace(next[1:])
			signature, open = head(text)
		}
		signature = strings.ReplaceAll(bracket().ReplaceAllString(signature, ")"), "( ", "(")
		return m[1], strings.TrimRight(strings.TrimSpace(signature), " {:=")
	}
	return "", ""
}

// longestSignature limits the lines of a definition.
const longestSignature = 20

// bracket matches the end of arguments that stand in lines of their own.
var bracket = env.Pattern(`,? \)`)

// pythonHead matches definitions in which a colon ends the head, rustHead those in which an apostrophe is not a quote.
var pythonHead, rustHead = env.Pattern(`^\s*(?:(?:async )?def|class) `), env.Pattern(`\bfn `)

// head returns the beginning of a definition's line: up to a brace, the colon of Python, an arrow, or else the first
// sign that gives a value. open is set if the line ends within brackets.
func head(line string) (text string, open bool) {
	quotes, end := "\"'`", len(line)
	if rustHead().MatchString(line) {
		quotes = `"`
	}
	depth, quote := 0, byte(0)
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case strings.IndexByte(quotes, c) >= 0:
			quote = c
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case depth > 0:
		case c == '{', c == ':' && pythonHead().MatchString(line), strings.HasPrefix(line[i:], "=>"):
			return line[:i], false
		case c == '=':
			end = min(end, i)
		}
	}
	return line[:end], depth > 0
}
