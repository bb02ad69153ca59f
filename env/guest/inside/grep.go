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
	// wholeLine is the longest line that is searched in memory. Longer ones are searched as a stream.
	wholeLine = 1 << 20
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

// find returns the start and end of the first match in a line, or nil.
func (p pattern) find(line []byte) []int {
	if p.regexp != nil {
		return p.regexp.FindIndex(line)
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
	var long []byte // the start of a line longer than the reader's buffer
	at := int64(0)  // the offset of the line's start
	for number := 1; ; number++ {
		if (number%256 == 0 || len(long) > 0) && g.ctx.Err() != nil {
			return g.ctx.Err()
		}
		line, err := in.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) && len(long)+len(line) <= wholeLine {
			long = append(long, line...)
			line, err = in.ReadSlice('\n')
		}
		length := int64(len(long) + len(line))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if length, err = g.stream(file, at, size, number); err != nil {
				return err
			}
			in.Reset(io.NewSectionReader(file, at+length, size-at-length))
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case length == 0:
			return nil
		case len(long) > 0:
			g.line(append(long, line...), number)
		default:
			g.line(line, number)
		}
		at, long = at+length, long[:0]
	}
}

func (g *grep) line(line []byte, number int) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	at := g.pattern.find(line)
	if at == nil {
		return
	}
	if g.total++; g.total > g.most {
		return
	}
	from, to := around(at[0], at[1], len(line), g.width)
	g.keep(number, line[from:to], from > 0, to < len(line))
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

// stream searches a line that is too long for memory, and returns its length, including the line feed.
func (g *grep) stream(file io.ReaderAt, at, size int64, number int) (int64, error) {
	line := &lineReader{ctx: g.ctx, in: bufio.NewReaderSize(io.NewSectionReader(file, at, size-at), 256<<10)}
	found, err := g.pattern.findStream(line)
	if err != nil {
		return 0, err
	}
	if err := line.skip(); err != nil {
		return 0, err
	}
	if found == nil {
		return line.read, nil
	}
	if g.total++; g.total <= g.most {
		length := int(line.length())
		from, to := around(found[0], found[1], length, g.width)
		text := make([]byte, to-from)
		n, err := file.ReadAt(text, at+int64(from))
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		g.keep(number, text[:n], from > 0, to < length)
	}
	return line.read, nil
}

// findStream is find for a line that is read in pieces.
func (p pattern) findStream(line *lineReader) ([]int, error) {
	if p.regexp != nil {
		return p.regexp.FindReaderIndex(line), line.err
	}
	held := make([]byte, 0, 256<<10+len(p.text))
	for dropped := 0; ; {
		part, more := line.nextPiece()
		held = append(held, part...)
		if i := bytes.Index(held, p.text); i >= 0 {
			return []int{dropped + i, dropped + i + len(p.text)}, nil
		}
		if !more {
			return nil, line.err
		}
		// The last bytes could be the start of a match.
		if drop := len(held) - len(p.text) + 1; drop > 0 {
			dropped += drop
			held = held[:copy(held, held[drop:])]
		}
	}
}

// lineReader reads one line of a file, in pieces or by rune, without keeping it in memory.
type lineReader struct {
	ctx   context.Context
	in    *bufio.Reader
	read  int64
	ended bool // the line feed has been read
	err   error
}

// length returns the line's length without its line feed; call it after the whole line was read.
func (l *lineReader) length() int64 {
	if l.ended {
		return l.read - 1
	}
	return l.read
}

// nextPiece returns the next piece of the line, and whether there may be more.
func (l *lineReader) nextPiece() ([]byte, bool) {
	if l.ended || l.err != nil {
		return nil, false
	}
	if l.err = l.ctx.Err(); l.err != nil {
		return nil, false
	}
	part, err := l.in.ReadSlice('\n')
	l.read += int64(len(part))
	switch {
	case err == nil:
		l.ended = true
		return part[:len(part)-1], false
	case errors.Is(err, bufio.ErrBufferFull):
		return part, true
	case !errors.Is(err, io.EOF):
		l.err = err
	}
	return part, false
}

func (l *lineReader) skip() error {
	for more := !l.ended; more; {
		_, more = l.nextPiece()
	}
	return l.err
}

// ReadRune implements io.RuneReader for package regexp.
func (l *lineReader) ReadRune() (rune, int, error) {
	if l.ended || l.err != nil {
		return 0, 0, io.EOF
	}
	if l.read%(1<<20) == 0 {
		if l.err = l.ctx.Err(); l.err != nil {
			return 0, 0, io.EOF
		}
	}
	r, n, err := l.in.ReadRune()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			l.err = err
		}
		return 0, 0, io.EOF
	}
	l.read += int64(n)
	if r == '\n' {
		l.ended = true
		return 0, 0, io.EOF
	}
	return r, n, nil
}
