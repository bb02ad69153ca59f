package tools

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// planReplace parses the parameters of str_replace and returns a function that computes the change to a file.
func planReplace(p *params) (func(file) (change, error), error) {
	before, err := p.required("old_str", "the text to replace, exactly as it appears in the file")
	if err != nil {
		return nil, err
	}
	after, _ := p.optional("new_str")
	switch before {
	case "":
		return nil, tell("old_str is empty. Use insert to add text. No replacement was performed.")
	case after:
		return nil, tell("No replacement was performed: old_str and new_str are identical.")
	}
	return func(f file) (change, error) { return replace(f, before, after) }, nil
}

// replace finds the one place where old_str occurs. If the exact text does not occur, it tries the forms in which
// models have to write it: with the file's line endings, and with invalid bytes as the view shows them.
func replace(f file, before, after string) (change, error) {
	for _, form := range forms(f.data, before, after) {
		places := occurrences(f.data, []byte(form.before), mostPlaces+1)
		switch len(places) {
		case 0:
			continue
		case 1:
			if breaksPair(f.data, places[0]) {
				continue
			}
			return change{at: places[0], old: []byte(form.before), new: []byte(form.after), note: form.note}, nil
		}
		return change{}, ambiguous(f, places)
	}
	places := looseOccurrences(f.data, before)
	switch len(places) {
	case 0:
		return change{}, noMatch(f, before)
	case 1:
		return looseChange(f.data, places[0], after), nil
	}
	var starts []int
	for _, p := range places {
		starts = append(starts, p[0])
	}
	return change{}, ambiguous(f, starts)
}

// breaksPair reports whether a position is between a carriage return and its line feed, where an edit would leave
// half a line break behind.
func breaksPair(data []byte, at int) bool {
	return at > 0 && at < len(data) && data[at] == '\n' && data[at-1] == '\r'
}

// looseOccurrences returns where a text of several lines occurs in a file with mixed line endings. It ignores the
// line endings, because a model cannot see them. Each place is the offset of the text's first byte and of the byte
// after it.
func looseOccurrences(data []byte, before string) [][2]int {
	before = strings.ReplaceAll(before, "\r\n", "\n")
	if !strings.Contains(before, "\n") || !bytes.Contains(data, []byte("\r\n")) {
		return nil
	}
	// plain is the file without the carriage returns of its line breaks; dropped are the positions in plain where
	// one was removed.
	plain := make([]byte, 0, len(data))
	var dropped []int32 // enough for largestFile
	for i, c := range data {
		if c == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			dropped = append(dropped, int32(len(plain)))
			continue
		}
		plain = append(plain, c)
	}
	original := func(at int) int {
		before, _ := slices.BinarySearch(dropped, int32(at))
		return at + before
	}
	var places [][2]int
	for _, at := range occurrences(plain, []byte(before), mostPlaces+1) {
		places = append(places, [2]int{original(at), original(at + len(before))})
	}
	return places
}

// looseChange replaces a text whose line breaks may differ from those of old_str. The new text has CRLF line breaks
// if all of the replaced ones are CRLF.
func looseChange(data []byte, place [2]int, after string) change {
	c := change{at: place[0], old: data[place[0]:place[1]], new: []byte(strings.ReplaceAll(after, "\r\n", "\n"))}
	c.note = "the file has mixed line endings: they were ignored to match old_str, and new_str was written with LF."
	if crlf(c.old) {
		c.new = []byte(toCRLF(after))
		c.note = "the file has mixed line endings: old_str was matched with CRLF, and new_str was written with CRLF."
	}
	return c
}

// form is one way to interpret old_str and new_str.
type form struct{ before, after, note string }

func forms(data []byte, before, after string) []form {
	all := []form{{before: before, after: after}}
	switch {
	case crlf(data):
		// Do not also try the exact text: if it contains a bare line feed, it could only match after a carriage
		// return that it does not include.
		if b, a := toCRLF(before), toCRLF(after); b != before || a != after {
			all = []form{{b, a, "the file uses CRLF line endings, so old_str and new_str were converted to CRLF."}}
		}
	case strings.Contains(before, "\r\n") && !bytes.Contains(data, []byte("\r")):
		all = append(all, form{strings.ReplaceAll(before, "\r\n", "\n"), strings.ReplaceAll(after, "\r\n", "\n"),
			"the file uses LF line endings, so old_str and new_str were converted to LF."})
	}
	if utf8.Valid(data) {
		return all
	}
	for _, f := range all {
		if b := unescape(f.before); b != f.before {
			all = append(all, form{b, unescape(f.after), strings.TrimSpace(f.note + ` \xNN in old_str and new_str was ` +
				`taken as that byte.`)})
		}
	}
	return all
}

var escapedByte = regexp.MustCompile(`\\x[89a-f][0-9a-f]`)

// unescape turns the \xNN of a view back into bytes, for bytes above ASCII only.
func unescape(s string) string {
	return escapedByte.ReplaceAllStringFunc(s, func(e string) string {
		n, _ := strconv.ParseUint(e[2:], 16, 8) // the pattern has two digits
		return string([]byte{byte(n)})
	})
}

// mostPlaces is how many places of an ambiguous text are listed.
const mostPlaces = 20

// occurrences returns where part occurs in data, including overlaps, up to a limit.
func occurrences(data, part []byte, limit int) []int {
	var places []int
	for from := 0; len(places) < limit; {
		i := bytes.Index(data[from:], part)
		if i < 0 {
			break
		}
		places = append(places, from+i)
		from += i + 1
	}
	return places
}

func ambiguous(f file, places []int) error {
	var at []string
	for _, p := range places[:min(len(places), mostPlaces)] {
		at = append(at, strconv.Itoa(f.lineAt(p)))
	}
	more := ""
	if len(places) > mostPlaces {
		more = " and others"
	}
	return tell("No replacement was performed. Multiple occurrences of old_str in %s, starting at lines %s%s. Add "+
		"surrounding lines to make old_str unique.", name(f.path), strings.Join(at, ", "), more)
}

// mostNear is how many lines of the most similar text are shown.
const mostNear = 30

// noMatch explains why old_str was not found, and shows the most similar text.
func noMatch(f file, before string) error {
	message := fmt.Sprintf("No replacement was performed, old_str did not appear verbatim in %s.", name(f.path))
	lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(before, "\r\n", "\n"), "\n"), "\n")
	if numbered(lines) {
		return tell("%s It seems to include the line numbers of a view: remove them.", message)
	}
	if f.lines == 0 {
		return tell("%s The file is empty.", message)
	}
	w, ok := nearest(f, lines)
	if !ok {
		return tell("%s The file has no similar text. View the file and copy the text exactly.", message)
	}
	if w.spacesOnly {
		message += fmt.Sprintf(" The text at %v differs only in whitespace (indentation, tabs or line endings):", w.span)
	} else {
		message += fmt.Sprintf(" The most similar text is at %v:", w.span)
	}
	var b strings.Builder
	crlf := crlf(f.data)
	for n, line := range f.from(w.first) {
		if n > min(w.last, w.first+mostNear) {
			break
		}
		text, _ := show(n, line, crlf)
		fmt.Fprintf(&b, "\n%6d\t%s", n, shorten(text, 300))
	}
	if w.spacesOnly {
		b.WriteString(whiteSpaceDifference(f, w, lines))
	} else if d := w.difference; d >= 0 {
		fmt.Fprintf(&b, "\nThe first difference is at line %d, where old_str has %s.", w.first+d,
			shorten(strconv.Quote(lines[d]), 300))
	}
	return tell("%s%s", message, b.String())
}

var viewPrefix = regexp.MustCompile(`^ *\d+\t`)

// numbered reports whether every line starts with a line number as in a view.
func numbered(lines []string) bool {
	return !slices.ContainsFunc(lines, func(l string) bool { return !viewPrefix.MatchString(l) })
}
