//go:build linux

package inside

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"
	"unicode/utf8"

	"deepswe/env/guest"
)

const (
	// wholeLine is the longest line that is searched as a whole. Longer ones are searched in parts, which overlap: a match
	// that is longer than the overlap may be missed, and $ also matches at the end of a part.
	wholeLine = 1 << 20
	overlap   = 64 << 10
	// binaryHead is how much of a file is checked for a NUL byte, which makes it binary.
	binaryHead = 8 << 10
)

// pattern is a text or a regular expression to search for.
type pattern struct {
	text   []byte
	regexp *regexp.Regexp
}

func newPattern(q guest.Query) (pattern, error) {
	if !q.Regexp {
		return pattern{text: []byte(q.Term)}, nil
	}
	re, err := regexp.Compile(q.Term)
	if err != nil {
		return pattern{}, err
	}
	if text, _ := re.LiteralPrefix(); text != "" && regexp.QuoteMeta(text) == q.Term {
		return pattern{text: []byte(text)}, nil // faster than a regular expression
	}
	return pattern{regexp: re}, nil
}

// find returns the start and end of the first match in a line, or nil. A part of a long line does not begin the line.
func (p pattern) find(line []byte, part bool) []int {
	if p.regexp != nil {
		if at := p.regexp.FindIndex(line); at == nil || at[0] > 0 || !part {
			return at
		}
		// The part before had this match, or it is one at the beginning of a line only.
		all := p.regexp.FindAllIndex(line, 2)
		return append(all, nil)[1]
	}
	if i := bytes.Index(line, p.text); i >= 0 {
		return []int{i, i + len(p.text)}
	}
	return nil
}

// grep searches one file, line by line.
type grep struct {
	ctx     context.Context
	pattern pattern
	most    int // matches to keep
	width   int // bytes to keep of a match's line
	in      *bufio.Reader

	matches []guest.Match // without their path
	total   int
	binary  bool
}

// search reads the file, up to the size that it had when it was opened.
func (g *grep) search(file io.ReaderAt, size int64) error {
	in := g.in
	in.Reset(io.NewSectionReader(file, 0, size))
	if head, _ := in.Peek(binaryHead); bytes.IndexByte(head, 0) >= 0 {
		g.binary = true
		return nil
	}
	var long []byte // the start of a line longer than the reader's buffer, or the end of its last part
	for number := 1; ; number++ {
		if number%256 == 0 && g.ctx.Err() != nil {
			return g.ctx.Err()
		}
		long = long[:0]
		part, found := false, false
		line, err := in.ReadSlice('\n')
		for ; errors.Is(err, bufio.ErrBufferFull); line, err = in.ReadSlice('\n') {
			if long = append(long, line...); len(long) > wholeLine {
				if g.ctx.Err() != nil {
					return g.ctx.Err()
				}
				found = found || g.line(long, number, part, true)
				part = true
				long = long[:copy(long, long[len(long)-overlap:])]
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line)+len(long) == 0 {
			return nil
		}
		if len(long) > 0 {
			long = append(long, line...)
			line = long
		}
		if !found {
			g.line(bytes.TrimSuffix(line, []byte("\n")), number, part, false)
		}
	}
}

// line searches a line, or a part of one: before is set if the line begins earlier, after if it ends later. It reports
// whether there is a match.
func (g *grep) line(line []byte, number int, before, after bool) bool {
	at := g.pattern.find(line, before)
	if at == nil {
		return false
	}
	if g.total++; g.total <= g.most {
		from, to := around(at[0], at[1], len(line), g.width)
		g.keep(number, line[from:to], before || from > 0, after || to < len(line))
	}
	return true
}

// keep stores a match. At an end where its line continues, incomplete characters are cut off.
func (g *grep) keep(number int, text []byte, cutBefore, cutAfter bool) {
	if cutBefore {
		for i := range min(len(text), utf8.UTFMax) {
			if utf8.RuneStart(text[i]) {
				text = text[i:]
				break
			}
		}
	}
	if cutAfter {
		for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax); i-- {
			if utf8.RuneStart(text[i]) {
				if !utf8.FullRune(text[i:]) {
					text = text[:i]
				}
				break
			}
		}
	}
	g.matches = append(g.matches, guest.Match{Line: number, Text: bytes.Clone(text), Cut: cutBefore || cutAfter})
}

// around returns which width bytes of a line to show, centred on the match.
func around(start, end, length, width int) (from, to int) {
	if length <= width {
		return 0, length
	}
	from = max(start-max(width-(end-start), 0)/2, 0)
	to = min(from+width, length)
	return max(to-width, 0), to
}
