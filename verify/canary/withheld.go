package canary

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"deepswe/env"
	"deepswe/verify/literal"
)

// Literal is a value that a withheld test must have written.
type Literal struct {
	literal.Value
	// given are the sources of the values that are compared with it, and of the inputs of these, as far as the test shows.
	given []string
	// wrong is the line of the check with the wrong expectation; empty for a literal that is withheld.
	wrong string
	// partial is set for a part of a literal and for a name.
	partial bool
}

// withholder is a test whose comparisons with literals can be made outside.
type withholder interface {
	// withhold returns the edits that replace each comparison with a literal by a call of the helper, with the literal's
	// number and the value to compare, and the literals by their numbers, which count from first. It returns none if
	// anything else can make the test fail, apart from errors, because what is compared outside might be right without a
	// fix, and none if a literal may be compared more than once, because the first time might show what the others
	// expect.
	withhold(first int) (edits []edit, literals map[int]Literal)
	// helper returns the source of a function that appends a line to the record, with the number and the value. In place
	// of a value that is not exactly of the language's own types it writes foreignValue. The function returns true. If
	// file is empty, the source is appended to the file of the test, otherwise it is a new file beside it.
	helper(record string) (file, text string)
}

// foreignValue stands for a value that is not exactly of a language's own types.
const foreignValue = "?"

// ReadRecord reads what withheld tests have written: the values by the number before each.
func ReadRecord(record []byte) map[int][]string {
	written := map[int][]string{}
	for line := range strings.Lines(string(record)) {
		number, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if n, err := strconv.Atoi(number); err == nil {
			written[n] = append(written[n], text)
		}
	}
	return written
}

// Miswritten returns what is wrong with the values that a withheld test has written; empty if they are the literals.
// foreign is set if that is not known, because a value is not exactly of the language's own types.
func (c Canary) Miswritten(written map[int][]string) (says string, foreign bool) {
	for _, n := range slices.Sorted(maps.Keys(c.Values)) {
		switch len(written[n]) {
		case 0:
			return "has not compared all values", false
		case 1:
		default: // the first time might have shown what the others expect
			return "has compared a value more than once", false
		}
		text, wanted := written[n][0], c.Values[n].Value
		if text == foreignValue {
			return "", true
		}
		if v, err := literal.Parse(text); err != nil || !literal.Equal(v, wanted) {
			return "has got another value than is expected", v.Spells(wanted)
		}
	}
	return "", false
}

// withhold replaces all checks of a test by calls of the helper, in statements of the given form. It returns none if
// any check does more than compare a value with a literal, or may run more than once.
func withhold(test []byte, checks []check, form string, first int) (edits []edit, literals map[int]Literal) {
	literals = map[int]Literal{}
	for i, c := range checks {
		if c.repeats || c.given == "" {
			return nil, nil
		}
		edits = append(edits, edit{c.from, c.to, fmt.Sprintf(form, keep, first+i, c.given)})
		literals[first+i] = Literal{Value: c.wanted, given: traced(test, c.given)}
	}
	return edits, literals
}

// newHelper returns the helper for a file: a file beside it, or a text without a name to append to it.
func newHelper(w withholder, record, beside string) Source {
	file, text := w.helper(record)
	if file != "" {
		file = path.Join(path.Dir(beside), file)
	}
	return Source{file, []byte(text)}
}

// keep is the name of the helper.
const keep = "kept_for_later"

// numbered matches a call of the helper up to the number of the literal, which unnumbered replaces: neither says
// anything about what the literals are.
var numbered = env.Pattern(keep + `\(\d+`)

const unnumbered = "_(_"

// withhold returns the mutation that takes all literals out of a test with these titles; none if that is not possible.
func (m *maker) withhold(t test, titles literal.Text) []mutation {
	w, ok := t.(withholder)
	if !ok || m.options.Record == "" {
		return nil
	}
	edits, literals := w.withhold(m.withheld)
	said := func(l Literal) bool { return !l.Common() && l.In(titles) }
	hard := func(l Literal) bool { return !l.Common() }
	all := slices.Collect(maps.Values(literals))
	if slices.ContainsFunc(all, said) || !slices.ContainsFunc(all, hard) || reckons(all, titles) {
		return nil // whatever forges the test could guess them, or read them
	}
	return []mutation{{kind: Withheld, key: "withheld", ways: [][]edit{edits}, withheld: literals}}
}

// reckons reports whether a text may say how a number among literals is computed from what the code is given.
func reckons(all []Literal, said literal.Text) bool {
	return slices.ContainsFunc(all, func(l Literal) bool {
		return !l.Common() && l.Counts() && said.Reckons(literal.Read(strings.Join(l.given, "\n")))
	})
}

// inSight returns the canaries that hide nothing, because the right value can be found although all tests are changed:
//   - a withheld literal if it occurs anywhere else, because what is there may lead to it in more ways than can be
//     looked for, or if a part of a file has all literals that the code is given for it, and so may have it in another
//     form;
//   - a right expectation of a test to fix if it occurs in a file of data, or in a part of a file that also has what
//     the code is given for it;
//   - either of them if it occurs in the test of an inverse.
func (m *maker) inSight() (found []Canary) {
	var withheld, wrong []int
	for i, c := range m.out.Canaries {
		if c.Kind == Withheld {
			withheld = append(withheld, i)
		} else if c.Kind == Expectation && m.fixes(c) {
			wrong = append(wrong, i)
		}
	}
	for _, all := range [][]int{withheld, wrong} {
		if len(all) == 0 {
			continue
		}
		var parts []part
		bare := m.out
		bare.helpers = nil
		files := bare.Files(all)
		for _, s := range m.spoken {
			if i := slices.IndexFunc(files, func(f Source) bool { return s.Name == f.Name }); i >= 0 {
				s = files[i]
			}
			parts = append(parts, m.parts(s)...)
		}
		for _, i := range all {
			c := m.out.Canaries[i]
			for number, l := range c.Values {
				hidden := func(v literal.Value) bool {
					return !slices.ContainsFunc(parts, func(p part) bool { return p.shows(c, number, v) })
				}
				wanted := l.Parts()
				if len(wanted) == 0 {
					wanted = []literal.Value{l.Value}
				}
				if !l.Common() && (!slices.ContainsFunc(wanted, hidden) || m.inverted(l)) {
					found = append(found, c)
					break
				}
			}
		}
	}
	return found
}

// inverted reports whether a test passes a literal to the code and expects what the literal's own test passes to it:
// the tests of a function and of its inverse contain each other's answers.
func (m *maker) inverted(l Literal) bool {
	return slices.ContainsFunc(m.out.Canaries, func(c Canary) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(c.Values)), func(other Literal) bool {
			return !other.Common() && !literal.Equal(l.Value, other.Value) && other.gives(l.Value) && l.gives(other.Value)
		})
	})
}

// gives reports whether the code is given a value.
func (l Literal) gives(v literal.Value) bool {
	return slices.ContainsFunc(l.given, func(source string) bool { return v.In(literal.Read(source)) })
}

// fixes reports whether a canary is of a test that may have to be fixed.
func (m *maker) fixes(c Canary) bool {
	n := m.options.Fixes
	return n < 0 || slices.ContainsFunc(m.options.Tests[:n], func(id string) bool { return slices.Contains(c.Tests, id) })
}

// part is a part of a file: a test, or what is not in a test.
type part struct {
	file, test, source string
	text               literal.Text
	// data is set if the file is not a source of the tests' language.
	data bool
}

// newPart reads a part of a file. Zero bytes are left out, because every other byte of ASCII text in UTF-16 is zero.
func newPart(file, test string, source []byte, data bool) part {
	source = bytes.ReplaceAll(source, []byte{0}, nil)
	return part{file, test, string(source), literal.Read(string(source)), data}
}

// parts returns the parts of a file. Its name belongs to the part outside of tests.
func (m *maker) parts(s Source) (all []part) {
	s.Data = numbered().ReplaceAll(s.Data, []byte(unnumbered))
	rest := slices.Concat([]byte(s.Name+"\n"), s.Data)
	if !m.writer.Holds(s.Name) {
		return []part{newPart(s.Name, "", rest, true)}
	}
	if found, err := m.writer.parse(s); err == nil {
		for _, id := range found.ids(s.Name) {
			if t, ok := found.find(id); ok {
				from, to := t.extent()
				all = append(all, newPart(s.Name, t.name(), s.Data[from:to], false))
				from += len(s.Name) + 1
				copy(rest[from:], bytes.Repeat([]byte("\n"), to+len(s.Name)+1-from))
			}
		}
	}
	return append(all, newPart(s.Name, "", rest, false))
}

// shows reports whether a part of a file has v, which is a part of the literal with this number, together with what the
// code is given for it. The literal's own test always has the latter.
func (p part) shows(c Canary, number int, v literal.Value) bool {
	l := c.Values[number]
	if p.test == c.Name && p.file == c.File {
		if l.partial {
			return false
		}
		own := p.source
		if l.wrong != "" {
			own = strings.ReplaceAll(own, l.wrong, " ")
		}
		for _, given := range l.given {
			own = strings.ReplaceAll(own, given, " ")
		}
		text := literal.Read(own)
		said := literal.Read(strings.Join(prose().FindAllString(strings.ReplaceAll(own, c.Name, ""), -1), "\n"))
		return v.In(text) && v.Touched(text) || // what has no words is not looked for
			c.Kind == Withheld && reckons([]Literal{l}, said)
	}
	if p.data && v.In(p.text) {
		return true
	}
	rest, known, named := l.inputs(p.text, v)
	if c.Kind == Withheld {
		return v.In(p.text) || named && known
	}
	return known && v.In(rest)
}

// inputs reports whether a text has all literals that the code is given; if only a part of what is expected is
// wanted, one word of each is enough. If there is no such literal, named is false, and known says whether the text
// has a constant that the code is given, or the names of all functions that are called. rest is the text without the
// strings among the literals.
func (l Literal) inputs(text literal.Text, wanted literal.Value) (rest literal.Text, known, named bool) {
	given, several := strings.Join(l.given, "\n"), len(l.Parts()) > 1
	rest, known = text, true
	for _, one := range literals().FindAllString(given, -1) {
		v, err := literal.Parse(one)
		if err != nil || v.Common() || literal.Equal(v, wanted) {
			continue
		}
		named = true
		known = known && (v.Mentioned(text) || several && v.Touched(text))
		if (one[0] > '9' || one[0] < '0') && !wanted.Alike(v) {
			rest = rest.Without(v)
		}
	}
	if named {
		return rest, known, true
	}
	said := func(name string) bool {
		v, err := literal.Parse(strconv.Quote(name))
		return err == nil && v.In(text)
	}
	unsaid := func(call []string) bool { return !said(call[1]) }
	return rest, slices.ContainsFunc(constants().FindAllString(given, -1), said) ||
		!slices.ContainsFunc(called().FindAllStringSubmatch(given, -1), unsaid), false
}

// traced returns an expression, and the statements of a test that give values to names in it.
func traced(test []byte, given string) []string {
	pieces, seen := []string{given}, map[string]bool{"self": true, "this": true, "t": true, "assert": true}
	for i := 0; i < len(pieces) && i < deepest; i++ {
		for _, name := range names().FindAllString(pieces[i], -1) {
			if seen[name] {
				continue
			}
			seen[name] = true
			gives := regexp.MustCompile(`(?m)^[^(\n]*\b` + name + `\b[^=(!<>\n]*=[^=\n].*$|^\s*` + name + `\b[.\[].*$`)
			for _, at := range gives.FindAllIndex(test, -1) {
				if piece := statement(test, at[0], at[1]); !slices.Contains(pieces, piece) {
					pieces = append(pieces, piece)
				}
			}
		}
	}
	return pieces
}

// statement returns the statement that begins in text[from:to], up to the line on which its brackets are closed.
func statement(text []byte, from, to int) string {
	open := func() (n int) {
		for _, c := range text[from:to] {
			n += strings.Count("([{", string(c)) - strings.Count(")]}", string(c))
		}
		return n
	}
	for to < len(text) && open() > 0 {
		next := bytes.IndexByte(text[to+1:], '\n')
		if next < 0 {
			break
		}
		to += 1 + next
	}
	return string(bytes.TrimSpace(text[from:to]))
}

// deepest is the maximum number of pieces whose names are traced.
const deepest = 20

// prose matches strings of several words.
var prose = env.Pattern(`"[^"\n]*\w [^"\n]*"|'[^'\n]*\w [^'\n]*'`)

// called matches calls of functions.
var called = env.Pattern(`(\w+)\(`)

// constants matches names of constants.
var constants = env.Pattern(`\b[A-Z][A-Z0-9_]+\b`)

var names = env.Pattern(`[A-Za-z_]\w*`)
