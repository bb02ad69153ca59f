package tools

import (
	"bytes"
	"fmt"
	"iter"
	"strconv"
	"strings"
)

// window is the part of a file that is most similar to a text that does not occur in it.
type window struct {
	span
	// spacesOnly is set if the lines differ only in whitespace.
	spacesOnly bool
	// difference is the index of the first line that differs; -1 if there is none or it is unknown.
	difference int
}

// Limits of the search for similar text. A line that occurs everywhere does not identify a position, and searching
// a huge file must not take too long.
const (
	commonLine    = 50
	mostCompared  = 50_000
	leastLikeness = 0.5
)

// nearest finds the lines of a file that are most similar to the given ones. Every line that is equal, except for
// whitespace at its ends, votes for the position at which the text would then start. If there are no votes, the
// line that is most similar to the text's first line decides.
func nearest(f file, lines []string) (window, bool) {
	places := make(map[string][]int)
	wanted := make(map[string]bool, len(lines))
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != "" {
			wanted[l] = true
		}
	}
	for n, line := range f.from(1) {
		if n > mostCompared {
			break
		}
		if l := string(bytes.TrimSpace(line)); wanted[l] && len(places[l]) <= commonLine {
			places[l] = append(places[l], n)
		}
	}
	votes := make(map[int]int)
	best, most := 0, 0
	for i, l := range lines {
		at := places[strings.TrimSpace(l)]
		if len(at) > commonLine {
			continue
		}
		for _, n := range at {
			start := max(1, n-i)
			votes[start]++
			if votes[start] > most || votes[start] == most && start < best {
				best, most = start, votes[start]
			}
		}
	}
	if best == 0 {
		return likeliest(f, lines)
	}
	return compare(f, lines, best), true
}

// compare describes the window of a file that starts at line first.
func compare(f file, lines []string, first int) window {
	w := window{span: span{first, min(f.lines, first+len(lines)-1)}, spacesOnly: true, difference: -1}
	next, stop := iter.Pull2(f.from(first))
	defer stop()
	for i, l := range lines {
		_, has, ok := next()
		if ok && string(bytes.TrimSpace(has)) == strings.TrimSpace(l) {
			continue
		}
		w.spacesOnly, w.difference = false, i
		break
	}
	return w
}

// likeliest finds the line of the file that is most similar to the first non-blank line of the text.
func likeliest(f file, lines []string) (window, bool) {
	want := ""
	for _, l := range lines {
		if want = strings.TrimSpace(l); want != "" {
			break
		}
	}
	if want == "" || len(want) > maxLine {
		return window{}, false
	}
	best, score := 0, leastLikeness
	for n, l := range f.from(1) {
		if n > mostCompared {
			break
		}
		if len(l) > maxLine {
			continue
		}
		if s := likeness(string(bytes.TrimSpace(l)), want); s > score {
			best, score = n, s
		}
	}
	if best == 0 {
		return window{}, false
	}
	return window{span: span{max(1, best-1), min(f.lines, best+1)}, difference: -1}, true
}

// whiteSpaceDifference shows the first line that differs, with its whitespace made visible.
func whiteSpaceDifference(f file, w window, lines []string) string {
	for n, line := range f.from(w.first) {
		if n > w.last {
			break
		}
		if has, l := string(line), lines[n-w.first]; has != l {
			return fmt.Sprintf("\nLine %d is %s in the file and %s in old_str.", n,
				shorten(strconv.Quote(has), 300), shorten(strconv.Quote(l), 300))
		}
	}
	return "\nThe difference is the newline at the end of old_str."
}
