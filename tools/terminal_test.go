package tools

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTerminal(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, raw, want string }{
		{"plain", "a\n\tb\n", "a\n\tb"},
		{"white space first", "\n  a\n\n", "\n  a"},
		{"colours", "\x1b[1;31mred\x1b[0m and \x1b[38;5;12mblue\x1b[m", "red and blue"},
		{"C1 introducer", "\u009b31mred", "red"},
		{"title and link", "\x1b]0;title\abody \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "body link"},
		{"other strings", "\x1bPq#0\x1b\\a\x1b_apc\x1b\\b", "ab"},
		{"a string that never ends", "\x1b]0;title\nnext", "0;title\nnext"},
		{"character sets and modes", "\x1b(Ba\x1b=b\x1b7c", "abc"},
		{"cut sequences", "a\x1b[3", "a"},
		{"cut escape", "a\x1b", "a"},
		{"escape before a line break", "a\x1b\nb", "a\nb"},
		{"progress", " 10%\r 50%\r100%\ndone", "100%\ndone"},
		{"progress that ends its line", "100%\r\ndone\r\n", "100%\ndone"},
		{"carriage return at the end", "working\r", "working"},
		{"erased line", "working\r\x1b[K\ndone", "\ndone"},
		{"erased whole line", "working\x1b[2Kdone", "done"},
		{"backspace", "abc\b\bX\bé\b\n\b", "a"},
		{"overstrike", "n\bna\bam\bme\be", "name"},
		{"bell", "a\ab", "ab"},
		{"form feed", "a\fb", "a\nb"},
		{"not UTF-8", "caf\xe9 \xff", `caf\xe9 \xff`},
		{"other controls", "a\x00b\x7f\x01", `a\x00b\x7f\x01`},
		{"letters of the world", "größe 日本 🙂\n", "größe 日本 🙂"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := terminal([]byte(test.raw)); got != test.want {
				t.Errorf("%q shows as %q, want %q", test.raw, got, test.want)
			}
		})
	}
	if got := terminal([]byte("\x7fELF" + strings.Repeat("\x00\x01", 100))); !strings.HasPrefix(got,
		`(binary data, 204 bytes, not shown; it begins with \x7fELF\x00\x01`) || len(got) > 400 {
		t.Errorf("binary output shows as %q", got)
	}
}

func FuzzTerminal(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b[0m\r\x1b[K\b\x1b]0;t\a\x1bPq\x1b\\\u009b1m\xff\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := terminal(raw)
		if !utf8.ValidString(got) {
			t.Fatalf("%q shows as %q", raw, got)
		}
		if i := strings.IndexFunc(got, func(r rune) bool {
			return r < 0x20 && r != '\t' && r != '\n' || r >= 0x7f &&
				r <= 0x9f
		}); i >= 0 {
			t.Fatalf("%q shows as %q, with a control character", raw, got)
		}
		if len(got) > 4*len(raw)+400 {
			t.Fatalf("%d bytes became %d", len(raw), len(got))
		}
	})
}
