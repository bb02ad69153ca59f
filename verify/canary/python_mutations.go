package canary

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
)

// mutations returns a mutation for each statement whose expectation can be made wrong, and one that adds a check.
func (t *pyFunction) mutations(r *chance) []mutation {
	var all []mutation
	if len(t.body) == 0 { // it is on the same line as the head
		head := t.file.lines[t.head]
		colon := strings.Index(maskTop(pyCode(head.Text)), ":")
		if colon < 0 {
			return nil
		}
		return []mutation{replacement(Outright, "end", head.End-len(head.Text)+colon+1, t.to, " "+t.failure()+"\n")}
	}
	for i := len(t.body) - 1; i >= 0; i-- {
		l := t.body[i]
		if !t.reaches(i, pyRuns()) {
			continue
		}
		code := pyCode(l.Text)
		from := l.End - len(l.Text)
		for n, e := range t.wrong(code, r) {
			key := fmt.Sprintf("%d.%d", i, n)
			if e.elsewhere != nil {
				e.elsewhere.kind, e.elsewhere.key = Expectation, key
				all = append(all, *e.elsewhere)
				continue
			}
			m := replacement(Expectation, key, from, from+len(code), e.texts...)
			m.plain = e.plain
			all = append(all, m)
		}
	}
	end := t.to
	text := t.margin() + t.failure() + "\n"
	if end > 0 && t.file.data[end-1] != '\n' {
		text = "\n" + text
	}
	at := end
	if last := t.body[len(t.body)-1]; last.Indent == t.body[0].Indent && strings.HasPrefix(last.Text, "return") {
		at, text = last.Start, t.margin()+t.failure()+"\n"
	}
	return append(all, replacement(Outright, "end", at, at, text))
}

func (t *pyFunction) checks() (all []check) {
	r := &chance{Rand: rand.New(rand.NewPCG(0, 0))} // whatever the values are
	for i, l := range t.body {
		code := pyCode(l.Text)
		if pyDocstring(l.Text) || !pyChecks().MatchString(code) && len(t.wrong(code, r)) == 0 {
			continue
		}
		c := check{from: l.End - len(l.Text), repeats: !t.reaches(i, pyWith())}
		c.to = c.from + len(code)
		c.given, c.wanted, _ = pyCompared(code)
		for j := i + 1; strings.HasSuffix(code, ":") && j < len(t.body) && t.body[j].Indent > l.Indent; j++ {
			c.to = t.body[j].End
		}
		all = append(all, c)
	}
	return all
}

// margin returns the indentation of the body.
func (t *pyFunction) margin() string {
	first := t.body[0]
	return string(t.file.data[first.Start : first.End-len(first.Text)])
}

// reaches reports whether all blocks around line i of the body have heads that match, and none expects an error or a
// warning.
func (t *pyFunction) reaches(i int, heads *regexp.Regexp) bool {
	indent := t.body[0].Indent
	level := t.body[i].Indent
	if level == indent {
		return true
	}
	// Of the enclosing blocks, only with and for always run their statements.
	for j := i - 1; j >= 0 && level > indent; j-- {
		if t.body[j].Indent >= level {
			continue
		}
		level = t.body[j].Indent
		head := t.body[j].Text
		if !heads.MatchString(head) || strings.Contains(head, "aises") || strings.Contains(head, "arns") {
			return false
		}
	}
	return level == indent
}

// pyRuns matches the heads of blocks that always run, pyWith those of blocks that run once.
var (
	pyRuns = env.Pattern(`^(async\s+)?(with|for)\b`)
	pyWith = env.Pattern(`^(async\s+)?with\b`)
)

// failure returns a statement that fails, in the style of the test.
func (t *pyFunction) failure() string {
	var body strings.Builder
	for _, l := range t.body {
		body.WriteString(l.Text)
	}
	n := len(t.title)%7 + 2
	forms := []string{`len("x" * %d)`, "sum([%d, 0])", "max(%d, 1)", "list(range(9))[%d]"}
	got := fmt.Sprintf(forms[len(t.title)%len(forms)], n)
	switch text := body.String(); {
	case strings.Contains(text, "self.assertEqual("):
		return fmt.Sprintf("self.assertEqual(%s, %d)", got, n+1)
	case strings.Contains(text, "self.assert"):
		return fmt.Sprintf("self.assertTrue(%s > %d)", got, n+1)
	}
	return fmt.Sprintf("assert %s == %d", got, n+1)
}

var pyPrefix = env.Pattern(`^[rRuUbBfF]{0,2}["']`)

// pyDocstring reports whether a statement is only a string.
func pyDocstring(text string) bool {
	code := pyCode(text)
	if !pyPrefix().MatchString(code) {
		return false
	}
	return strings.TrimLeft(strings.TrimSpace(maskTop(code)), "rRuUbBfF") == ""
}

// pyWrong is a way to make the expectation of a statement wrong: new texts of the statement, which differ in the value,
// or a mutation elsewhere.
type pyWrong struct {
	texts     []string
	elsewhere *mutation
	plain     bool // see mutation
}

// pyText is a pyWrong with one text.
func pyText(text string) pyWrong { return pyWrong{texts: []string{text}} }

// pyPlain is a pyWrong with one text that gives itself away.
func pyPlain(text string) pyWrong { return pyWrong{texts: []string{text}, plain: true} }

var (
	pyCall   = env.Pattern(`^([\w.]*?)(\w+)\(`)
	pyRaises = env.Pattern(`^(with\s+[\w.]*(?:raises|assertRaises(?:Regex|Message)?)\()([\w.]+)`)
	pyWords  = env.Pattern(`\b(and|or|not|in|is|if|else|lambda|for|await|yield)\b`)
	// pyOpposites maps assertions to their negation.
	pyOpposites = map[string]string{
		"assertTrue": "assertFalse", "assertFalse": "assertTrue", "assertIsNone": "assertIsNotNone",
		"assertIsNotNone": "assertIsNone", "assertIn": "assertNotIn", "assertNotIn": "assertIn", "assertIs": "assertIsNot",
		"assertIsInstance": "assertNotIsInstance", "assertGreater": "assertLessEqual", "assertLess": "assertGreaterEqual",
		"assertGreaterEqual": "assertLess", "assertLessEqual": "assertGreater", "assertNotEqual": "assertEqual",
		"assertContains": "assertNotContains", "assertNotContains": "assertContains",
	}
)

// wrong returns the ways to make the expectation of a statement wrong.
func (t *pyFunction) wrong(code string, r *chance) []pyWrong {
	if rest, ok := pyAsserted(code); ok {
		return t.wrongAssert(rest, r)
	}
	if m := pyRaises().FindStringSubmatch(code); m != nil {
		return t.wrongError(m[1], m[2], code[len(m[0]):], r)
	}
	m, arguments := pyCalled(code)
	if m == nil {
		return nil
	}
	lower := strings.ToLower(m[2])
	switch {
	case pyOpposites[m[2]] != "" && len(arguments) > 0:
		opposite := pyText(m[1] + pyOpposites[m[2]] + code[len(m[1]+m[2]):])
		opposite.plain = strings.Contains(m[2], "Greater") || strings.Contains(m[2], "Less")
		return []pyWrong{opposite}
	case strings.HasSuffix(lower, "notequal"), strings.Contains(lower, "notalmost"), len(arguments) < 2:
		return nil
	case !strings.Contains(lower, "assert") && !strings.HasPrefix(lower, "eq"),
		!strings.Contains(lower, "equal") && lower != "eq_" && !strings.HasSuffix(lower, "close"):
		return nil
	}
	call := func(arguments []string) string { return m[0] + strings.Join(arguments, ",") + ")" }
	wrapped := slices.Clone(arguments)
	wrapped[1] = pyWrapped(wrapped[1])
	return t.wrongSide(arguments, call, pyPlain(call(wrapped)), r)
}

// wrongError makes a statement that expects an error expect another error, or another text of the same one. before,
// name and rest make up the statement. If it has a text, another error gives itself away, because the text fits only
// one error: "must not be a str" is a TypeError's.
func (t *pyFunction) wrongError(before, name, rest string, r *chance) []pyWrong {
	others := mapped(t.pyOtherErrors(name), func(s string) string { return before + s + rest })
	all := []pyWrong{{texts: others, plain: strings.ContainsAny(rest, `"'`)}}
	if text := pyErrorText().FindStringSubmatchIndex(rest); text != nil {
		all = append(all, pyWrong{texts: mapped(otherTexts(rest[text[2]:text[3]], r), func(s string) string {
			return before + name + rest[:text[2]] + s + rest[text[3]:]
		})})
	}
	return all
}

// pyErrorText matches the text that an error must have, behind the error's name.
var pyErrorText = env.Pattern(`^,\s*(?:match=|expected_regex=|expected_message=)?[rRuU]?["']([^"'\\\n]+)["']\s*\)`)

// wrongSide makes one of the two sides of a comparison wrong: the second or, if that is not possible, the first.
// otherwise is returned if neither can be changed, and as a second way if the side is an object.
func (t *pyFunction) wrongSide(
	compared []string, statement func(compared []string) string, otherwise pyWrong, r *chance,
) []pyWrong {
	with := func(i int, others []string) pyWrong {
		return pyWrong{texts: mapped(others, func(s string) string {
			changed := slices.Clone(compared)
			changed[i] = s
			return statement(changed)
		})}
	}
	for _, i := range []int{1, 0} {
		if others := pyOthers(compared[i], r); len(others) > 0 {
			return []pyWrong{with(i, others)}
		}
	}
	if e := t.assigned(strings.TrimSpace(compared[1]), r); e != nil {
		return []pyWrong{{elsewhere: e}}
	}
	if others := pyOtherObjects(compared[1], r); len(others) > 0 {
		return []pyWrong{with(1, others), otherwise}
	}
	return []pyWrong{otherwise}
}

// wrongAssert does what wrong does for an assert statement, of which rest follows the keyword.
func (t *pyFunction) wrongAssert(rest string, r *chance) []pyWrong {
	parts := splitTop(rest, ",")
	expr, message := strings.TrimSpace(parts[0]), ""
	if len(parts) > 1 {
		message = "," + strings.Join(parts[1:], ",")
	}
	negated := pyNegation(expr, message)
	sides := pyEqual(expr)
	if sides == nil {
		return []pyWrong{negated}
	}
	statement := func(sides []string) string { return "assert " + strings.Join(sides, "==") + message }
	return t.wrongSide(sides, statement, negated, r)
}

func pyWrapped(expr string) string {
	trimmed := strings.TrimLeft(expr, " \t\r\n")
	return expr[:len(expr)-len(trimmed)] + "(" + trimmed + ", 0)"
}

// assigned returns the mutation that assigns another value to a variable, if the test uses the variable only twice: to
// assign a literal, and to compare.
func (t *pyFunction) assigned(name string, r *chance) *mutation {
	word := regexp.MustCompile(`^[A-Za-z_]\w*$`)
	if !word.MatchString(name) {
		return nil
	}
	use := regexp.MustCompile(`\b` + name + `\b`)
	uses, at := 0, -1
	for i, l := range t.body {
		uses += len(use.FindAllString(l.Text, -1))
		if l.Indent == t.body[0].Indent && strings.HasPrefix(strings.ReplaceAll(l.Text, " ", ""), name+"=") {
			at = i
		}
	}
	if uses != 2 || at < 0 {
		return nil
	}
	l := t.body[at]
	code := pyCode(l.Text)
	head, value, _ := strings.Cut(code, "=")
	others := pyOthers(value, r)
	if len(others) == 0 {
		return nil
	}
	from := l.End - len(l.Text)
	texts := mapped(others, func(s string) string { return head + "=" + s })
	m := replacement(Expectation, "", from, from+len(code), texts...)
	return &m
}

var pyNumber = env.Pattern(`^-?\d+(\.\d+)?$`)

// pyOthers changes the value of a literal, or of a random literal or object in a list, a tuple, a set or a dictionary,
// and adds an element to an empty list or dictionary. It returns none if it can do neither.
func pyOthers(expr string, r *chance) []string {
	trimmed := strings.TrimSpace(expr)
	i := strings.Index(expr, trimmed)
	before, after := expr[:i], expr[i+len(trimmed):]
	around := func(s string) string { return before + s + after }
	if others := pyOtherScalars(trimmed, r); len(others) > 0 {
		return mapped(others, around)
	}
	if !bracketed(trimmed) {
		return nil
	}
	inner := trimmed[1 : len(trimmed)-1]
	parts := splitTop(inner, ",")
	for _, n := range r.Perm(len(parts)) {
		part := parts[n]
		if pyWords().MatchString(maskTop(part)) {
			return nil
		}
		key := ""
		if pair := splitTop(part, ":"); len(pair) == 2 && trimmed[0] == '{' {
			key, part = pair[0]+":", pair[1]
		} else if len(pair) > 2 {
			return nil
		}
		others := pyOthers(part, r)
		if len(others) == 0 {
			others = pyOtherObjects(part, r)
		}
		if len(others) > 0 {
			return mapped(others, func(s string) string {
				changed := slices.Clone(parts)
				changed[n] = key + s
				return around(trimmed[:1] + strings.Join(changed, ",") + trimmed[len(trimmed)-1:])
			})
		}
	}
	if strings.TrimSpace(inner) == "" && trimmed[0] == '[' {
		return []string{around("[0]")}
	}
	if strings.TrimSpace(inner) == "" && trimmed[0] == '{' {
		return []string{around("{0: 0}")}
	}
	return nil
}

// pyOtherScalars changes a number, a string, True, False or None.
func pyOtherScalars(expr string, r *chance) []string {
	switch expr {
	case "True":
		return []string{"False"}
	case "False":
		return []string{"True"}
	case "None":
		return []string{"0"}
	}
	if pyNumber().MatchString(expr) {
		least := 0 // a count is never negative
		if expr[0] == '-' {
			least = math.MinInt
		}
		return otherDecimals(expr, least, r)
	}
	if !pyPrefix().MatchString(expr) || strings.TrimLeft(strings.TrimSpace(maskTop(expr)), "rRuUbBfF \t\r\n") != "" {
		return nil
	}
	quotes := expr[len(expr)-1:]
	if strings.HasSuffix(expr, strings.Repeat(quotes, 3)) && len(expr) >= 6 {
		quotes = expr[len(expr)-3:]
	}
	opening := strings.Index(expr, quotes) + len(quotes)
	end := max(opening, len(expr)-len(quotes))
	if strings.ContainsAny(expr[:opening], "fF") && strings.Contains(expr, "{") { // braces have names and formats
		return nil
	}
	return mapped(otherTexts(expr[opening:end], r), func(s string) string { return expr[:opening] + s + expr[end:] })
}
