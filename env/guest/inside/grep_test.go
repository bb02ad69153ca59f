//go:build linux

package inside

import (
	"bufio"
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"deepswe/env/guest"
)

func search1(t interface{ Fatal(...any) }, q guest.Query, content []byte) *grep {
	p, err := newPattern(q)
	if err != nil {
		t.Fatal(err)
	}
	g := &grep{ctx: context.Background(), pattern: p, most: 100, width: 40, in: bufio.NewReaderSize(nil, 64)}
	if err := g.search(bytes.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGrep compares with the simple way: split the content into lines, and match each.
func TestGrep(t *testing.T) {
	terms := []string{
		"a", "ab", "é", "a.b", "x y", "^a", "b$", "^$", "a*", "[^a]", `\s`, "(?i)AB", "a|b", `a\.b`, "^a.*b$",
	}
	rapid.Check(t, func(t *rapid.T) {
		content := []byte(strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{
			"a", "b", "ab", "a.b", "é", "\n", "\n", "\r\n", " ", "x y", "\xff", "AB", strings.Repeat("long ", 40),
		})).Draw(t, "content"), ""))
		q := guest.Query{Term: rapid.SampledFrom(terms).Draw(t, "term"), Regexp: rapid.Bool().Draw(t, "regexp")}
		g := search1(t, q, content)
		pattern := q.Term
		if !q.Regexp {
			pattern = regexp.QuoteMeta(pattern)
		}
		re := regexp.MustCompile(pattern)
		lines := bytes.Split(content, []byte("\n"))
		if len(lines[len(lines)-1]) == 0 {
			lines = lines[:len(lines)-1] // there is no line after the last line feed
		}
		var want []int
		for i, line := range lines {
			if re.Match(line) {
				want = append(want, i+1)
			}
		}
		if g.total != len(want) {
			t.Fatalf("%d lines match %q in %q, want %v", g.total, pattern, content, want)
		}
		for i, m := range g.matches {
			line := lines[want[i]-1]
			if m.Line != want[i] || !bytes.Contains(line, m.Text) || m.Cut != (len(m.Text) < len(line)) || len(m.Text) > 40 {
				t.Fatalf("match %+v of line %q", m, line)
			}
		}
	})
}

// TestGrepLongLine: a line that is too long for memory is searched, and the part around the match is shown.
func TestGrepLongLine(t *testing.T) {
	t.Parallel()
	filler := strings.Repeat("ü", wholeLine)
	for name, c := range map[string]struct {
		content, term string
		regexp        bool
		line          int
		text          string // a part of what is shown
	}{
		"at the end":       {"one\n" + filler + "needle\nthree\n", "needle", false, 2, "üneedle"},
		"at the beginning": {"needle" + filler + "\n", "needle", false, 1, "needleü"},
		"in the middle":    {filler + "needle" + filler, "needle", false, 1, "üneedleü"},
		"regexp":           {"one\n" + filler + "nnneedle\nneedle\n", "n+eedle$", true, 2, "ünnneedle"},
		"the last line":    {"one\n" + filler + "x", "x$", true, 2, "üx"},
		"the line after":   {filler + "\nneedle\n", "needle", false, 2, "needle"},
		"anchored":         {"x" + filler + "x" + filler + "\n" + filler + "\nxé", "^x", true, 1, "xü"},
		"only the end":     {filler + "x" + filler + "\n" + filler + "x", "x$", true, 2, "üx"},
	} {
		g := search1(t, guest.Query{Term: c.term, Regexp: c.regexp}, []byte(c.content))
		if len(g.matches) == 0 || g.matches[0].Line != c.line || !strings.Contains(string(g.matches[0].Text), c.text) {
			t.Errorf("%s: %+v", name, g.matches)
			continue
		}
		if m := g.matches[0]; len(m.Text) > 40 || !utf8.Valid(m.Text) {
			t.Errorf("%s: shows %q", name, m.Text)
		}
	}
	if g := search1(t, guest.Query{Term: "absent"}, []byte(filler+"\n"+filler+"\n")); g.total != 0 {
		t.Errorf("%+v", g.matches)
	}
	// The text lies across two parts of a line.
	across := strings.Repeat("x", wholeLine-3) + "needle" + filler
	if g := search1(t, guest.Query{Term: "needle"}, []byte(across)); g.total != 1 {
		t.Error("a text across two parts was not found")
	}
}

func TestGrepBinary(t *testing.T) {
	if g := search1(t, guest.Query{Term: "a"}, []byte("a\x00a")); !g.binary || g.total != 0 {
		t.Errorf("%+v", g)
	}
}

func FuzzGrep(f *testing.F) {
	f.Add("a+", true, []byte("aaa\nb\n"))
	f.Add("\xff", false, []byte("\xff\n\xff"))
	f.Fuzz(func(t *testing.T, term string, isRegexp bool, content []byte) {
		if _, err := newPattern(guest.Query{Term: term, Regexp: isRegexp}); err != nil || term == "" {
			return
		}
		g := search1(t, guest.Query{Term: term, Regexp: isRegexp}, content)
		for _, m := range g.matches {
			if len(m.Text) > 40 || bytes.ContainsRune(m.Text, '\n') || !bytes.Contains(content, m.Text) {
				t.Errorf("match %+v", m)
			}
		}
	})
}
