package tools

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"deepswe/env"
)

const cutRule = "\n--------------------------------------------------\n"

func lines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "%d\n", i)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func TestStreamClip(t *testing.T) {
	t.Parallel()
	whole := func(s string) env.Output { return env.Output{Head: []byte(s), Size: int64(len(s))} }
	tests := []struct {
		name         string
		out          env.Output
		lines, chars int
		want         string
	}{
		{"fits", whole("a\nb\n"), 2, 3, "a\nb"},
		{"nothing", whole(""), 2, 3, ""},
		{"too many lines", whole(lines(1, 9)), 4, 100, "1\n2" + cutRule + "[5 lines, 10 characters truncated]" + cutRule +
			"8\n9"},
		{"too many characters", whole(lines(1, 9)), 100, 8, "1\n2" + cutRule + "[5 lines, 10 characters truncated]" +
			cutRule + "8\n9"},
		{"one long line", whole(strings.Repeat("ab", 50)), 10, 10, "ababa" + cutRule + "[90 characters of a line truncated]" +
			cutRule + "babab"},
		{"runes stay whole", whole(strings.Repeat("é", 50)), 10, 10, "éé" + cutRule +
			"[92 characters of a line truncated]" + cutRule + "éé"},
		{"the sandbox kept both ends", env.Output{Head: []byte("a\nb"), Tail: []byte("y\nz\n"), Size: 1007}, 10, 100,
			"a" + cutRule + "[1,003 characters truncated]" + cutRule + "z"},
		{"the sandbox kept parts of one line", env.Output{Head: []byte("aé")[:2], Tail: []byte("é" + "zz")[1:], Size: 100},
			10, 100,
			"a" + cutRule + "[97 characters truncated]" + cutRule + "zz"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := newStream(test.out).clip(test.lines, test.chars); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// For all output and all limits, the clipped text is valid and bounded, made of the stream's beginning and end, and
// complete if it fits.
func TestStreamClipProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "é", "日", "\n", "word ",
			strings.Repeat("x", 300)}), 0, 30).Draw(t, "text"), "")
		maxLines := rapid.IntRange(0, 12).Draw(t, "lines")
		maxChars := rapid.IntRange(0, 900).Draw(t, "chars")
		s := newStream(env.Output{Head: []byte(text), Size: int64(len(text))})
		got := s.clip(maxLines, maxChars)
		head, rest, cut := strings.Cut(got, cutRule+"[")
		if !cut {
			if got != s.head {
				t.Fatalf("%q shows as %q", text, got)
			}
			return
		}
		_, tail, _ := strings.Cut(rest, "]"+cutRule)
		if !strings.HasPrefix(s.head, head) || !strings.HasSuffix(s.head, tail) || !utf8.ValidString(got) {
			t.Fatalf("%q shows as %q", text, got)
		}
		if len(head)+len(tail) > maxChars || strings.Count(head, "\n")+strings.Count(tail, "\n") > maxLines {
			t.Fatalf("%d characters of %d, %q", len(head)+len(tail), maxChars, got)
		}
		if s.lines() <= maxLines && s.chars() <= maxChars {
			t.Fatalf("%q fits, and was cut to %q", text, got)
		}
	})
}

func TestShare(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ a, b, most, forA, forB int }{
		{10, 10, 80, 70, 70},
		{100, 10, 80, 70, 40},
		{100, 100, 80, 40, 40},
		{0, 500, 80, 40, 80},
	} {
		a, b := share(test.a, test.b, test.most)
		if a != test.forA || b != test.forB {
			t.Errorf("share(%d, %d, %d) = %d, %d, want %d, %d", test.a, test.b, test.most, a, b, test.forA, test.forB)
		}
		if min(a, test.a)+min(b, test.b) > test.most {
			t.Errorf("share(%d, %d, %d) gives away too much", test.a, test.b, test.most)
		}
	}
}
