package testlog

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, log, want string }{
		{"plain", "a\nb\n", "a\nb\n"},
		{"line ends", "a\r\nb\rc\r\r\nd\r", "a\nb\nc\n\nd\n"},
		{"stray byte", "a\xffb", "a�b"},
		{"stray continuations, one each", "\x80\xbf", "��"},
		{"a beginning of three bytes is one", "\xe2\x82x", "�x"},
		{"a beginning of four bytes is one", "\xf0\x9f\x98x", "�x"},
		{"cut at the end", "x\xf0\x9f", "x�"},
		{"half a surrogate pair is three", "\xed\xa0\x80", "���"},
		{"overlong forms", "\xc0\xaf\xe0\x80\xaf", "�����"},
		{"beyond Unicode", "\xf4\x90\x80\x80\xf5", "�����"},
		{"a beginning before another", "\xe2\x82\xe2\x82\xac", "�€"},
		{"a replacement character stays", "�\xff�", "���"},
		{"no mark is removed", "\xef\xbb\xbfa", "\ufeffa"},
		{"an end of line inside of a character", "\xe2\r\n\x82", "�\n�"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Decode([]byte(c.log)); got != c.want {
				t.Errorf("Decode(%q) = %q, want %q", c.log, got, c.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "a\r\nb", "\xff\xe2\x82", "漢\x1c\u2028"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		got := Decode(log)
		if !utf8.ValidString(got) || strings.Contains(got, "\r") {
			t.Fatalf("Decode(%q) = %q", log, got)
		}
		if again := Decode([]byte(got)); again != got {
			t.Fatalf("decoded text changes: %q to %q", got, again)
		}
		if want := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(log)); utf8.Valid(log) && got != want {
			t.Fatalf("Decode(%q) = %q, want %q", log, got, want)
		}
	})
}

// The harness splits and trims by Python's white space, which differs from Go's.
func TestWhiteSpace(t *testing.T) {
	t.Parallel()
	const spaces = "\t\n\v\f\r\x1c\x1d\x1e\x1f \u0085\u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"
	for _, r := range spaces {
		if got := fields("a" + string(r) + "b"); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%U does not split: %q", r, got)
		}
		if !Pattern(`^\s$`)().MatchString(string(r)) || Pattern(`^\S$`)().MatchString(string(r)) {
			t.Errorf(`\s does not match %U`, r)
		}
	}
	for _, r := range "\u200b\ufeff\x00\x1b\u180e" {
		if got := fields("a" + string(r) + "b"); len(got) != 1 {
			t.Errorf("%U splits", r)
		}
		if Pattern(`\s`)().MatchString(string(r)) {
			t.Errorf(`\s matches %U`, r)
		}
	}
	if !Pattern(`^\d\w\w\w$`)().MatchString("٣é²_") {
		t.Error(`\d and \w know ASCII only`)
	}
	if Pattern(`\w`)().MatchString("-\u0301") {
		t.Error(`\w matches a combining mark`)
	}
}

func TestWord(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, first, rest string }{
		{"", "", ""},
		{" \x1c ", "", ""},
		{"a", "a", ""},
		{" a\u3000b c", "a", "\u3000b c"},
		{"é\x1fb", "é", "\x1fb"},
	} {
		if first, rest := word(c.in); first != c.first || rest != c.rest {
			t.Errorf("word(%q) = %q, %q, want %q, %q", c.in, first, rest, c.first, c.rest)
		}
	}
}

func TestWithoutElements(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"a<x>b</x>c", "ac"},
		{"<x><y>1</y></x>", ""},
		{"<x><x>1</x>2</x>3", "3"},
		{"<x><x>1</x>2", "<x>2"},
		{"<x>1<y>2</x>3</y>", "3</y>"},
		{"<x a>1</x a>", "<x a>1</x a>"},
		{"</x><x>", "</x><x>"},
		{"<o>1<y></y></<y>2</y>o>3", "3"},
		{"</<y>2</y>o>3<o>", "</o>3<o>"},
		{"<<y></y>o>1</o>2", "2"},
	} {
		if got := withoutElements(c.in); got != c.want {
			t.Errorf("withoutElements(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}
