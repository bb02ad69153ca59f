package tools

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"deepswe/env"
)

// stream is a command's output, made safe to show: its start and, if the sandbox discarded the middle, its end.
type stream struct {
	head, tail string
	// lost is how many bytes the sandbox discarded in between.
	lost int64
}

func newStream(o env.Output) stream {
	lost := o.Size - int64(len(o.Head)+len(o.Tail))
	if lost <= 0 {
		return stream{head: terminal(slices.Concat(o.Head, o.Tail))}
	}
	head, tail := o.Head, o.Tail
	// Either side of the gap may be in the middle of a line or a character. Drop these parts, which would look
	// complete.
	if i := bytes.LastIndexByte(head, '\n'); i >= 0 {
		lost += int64(len(head) - i - 1)
		head = head[:i+1]
	}
	if i := bytes.IndexByte(tail, '\n'); i >= 0 && i+1 < len(tail) {
		lost += int64(i + 1)
		tail = tail[i+1:]
	}
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
		lost++
	}
	whole := wholeRunes(string(head))
	lost += int64(len(head) - len(whole))
	return stream{head: terminal([]byte(whole)), tail: terminal(tail), lost: lost}
}

// lines and chars return what showing the whole stream would need.
func (s stream) lines() int {
	if s.chars() == 0 {
		return 0
	}
	return strings.Count(s.head, "\n") + strings.Count(s.tail, "\n") + 1
}

func (s stream) chars() int { return len(s.head) + len(s.tail) }

// clip renders the stream within limits: its first and last lines, and how much is missing in between.
func (s stream) clip(maxLines, maxChars int) string {
	if s.lost == 0 && s.lines() <= maxLines && s.chars() <= maxChars {
		return s.head
	}
	front, back := s.head, s.tail
	if s.lost == 0 {
		back = s.head
	}
	end := frontEnd(front, (maxLines+1)/2, maxChars/2)
	begin := backBegin(back, maxLines/2, maxChars-maxChars/2)
	if s.lost == 0 && end >= begin {
		return s.head
	}
	var gap string
	if s.lost == 0 {
		gap = missing(front[end:begin])
	} else {
		gap = fmt.Sprintf("%s characters truncated", count(s.lost+int64(len(front)-end+begin)))
	}
	const rule = "--------------------------------------------------"
	return strings.TrimRight(front[:end], "\n") + "\n" + rule + "\n[" + gap + "]\n" + rule + "\n" + back[begin:]
}

// missing describes how much was cut.
func missing(s string) string {
	if n := strings.Count(s, "\n"); n > 0 {
		return fmt.Sprintf("%s, %s characters truncated", plural(n, "line"), count(len(s)))
	}
	return fmt.Sprintf("%s characters of a line truncated", count(len(s)))
}

// worthwhile is the least number of bytes for which a cut line is worth showing.
const worthwhile = 200

// frontEnd returns the end of the first lines that fit. A line that does not fit is cut if nothing else would be
// shown, or if there is room for at least worthwhile bytes of it.
func frontEnd(s string, lines, chars int) int {
	end := 0
	for range lines {
		i := strings.IndexByte(s[end:], '\n')
		next := end + i + 1
		if i < 0 {
			next = len(s)
		}
		if next > chars {
			if end == 0 || chars-end >= worthwhile {
				return len(wholeRunes(s[:max(0, chars)]))
			}
			return end
		}
		if end = next; end == len(s) {
			break
		}
	}
	return end
}

// backBegin returns the start of the last lines that fit, by the rule of frontEnd.
func backBegin(s string, lines, chars int) int {
	begin := len(s)
	for range lines {
		if begin == 0 {
			break
		}
		next := strings.LastIndexByte(s[:begin-1], '\n') + 1
		if len(s)-next > chars {
			if begin == len(s) || chars-(len(s)-begin) >= worthwhile {
				begin = len(s) - max(0, chars)
				for begin < len(s) && !utf8.RuneStart(s[begin]) {
					begin++
				}
			}
			return begin
		}
		begin = next
	}
	return begin
}
