package literal

import (
	"strings"
	"testing"
)

func TestEqual(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"1", "1.0", true}, {"1", "2", false}, {"-3", "-3", true}, {"1e3", "1000", true}, {"1_000", "1000", true},
		{"0.1", "0.10", true}, {"True", "1", true}, {"true", "1", false}, {"None", "None", true}, {"null", "undefined", false},
		{"'a'", `"a"`, true}, {`'a\n\x41'`, `"a\nA"`, true}, {`'it\'s'`, `"it's"`, true}, {"'a' 'b'", "'ab'", true},
		{`'\u00e9'`, "'é'", true}, {"`x`", "'x'", true}, {"'1'", "1", false},
		{"[1, 2]", "[1,2,]", true}, {"[1, 2]", "(1, 2)", false}, {"(1)", "1", true}, {"(1,)", "1", false}, {"[]", "[]", true},
		{"{'a': 1, 'b': [2]}", `{"b": [2], "a": 1}`, true}, {"{a: 1}", `{"a":1}`, true}, {"{1, 2}", "{2, 1}", true},
		{"{'a': 1}", "{'a': 2}", false}, {"{1, 2}", "{1, 3}", false}, {"{}", "{}", true}, {"[[1], {'a': None}]", "[[1],{'a':None}]", true},
	} {
		a, err := Parse(tc.a)
		if err != nil {
			t.Fatalf("%s: %v", tc.a, err)
		}
		b, err := Parse(tc.b)
		if err != nil {
			t.Fatalf("%s: %v", tc.b, err)
		}
		if got := Equal(a, b); got != tc.want || Equal(b, a) != tc.want {
			t.Errorf("%s and %s: equal %v, want %v", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "x", "f()", "1 + 2", "f'x'", "b'x'", "'x", "'''x'''", "[1", "[1 2]", "[,]", "{'a': 1, 2}", "{1, 'a': 2}", "`${x}`",
		"1e999999999", "set()", "a.b", "[x]", "-", "--1", "1 if x else 2", "'a\nb'", "?", strings.Repeat("[", 200),
	} {
		if v, err := Parse(text); err == nil {
			t.Errorf("%q is read as %+v", text, v)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"{'a': [1, (2.5,), None]}", `"\x41\u00e9"`, "{1, 2}", "{a: `b`}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := Parse(text)
		if err == nil && !Equal(v, v) {
			t.Errorf("%q does not equal itself", text)
		}
	})
}

// A number spells a text with the same digits, as in JavaScript's loose comparisons.
func TestSpells(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]bool{{"5", "'5'"}: true, {"'5'", "6"}: false, {"[]", "[]"}: false, {"''", "0"}: false} {
		a, _ := Parse(pair[0])
		b, _ := Parse(pair[1])
		if got := a.Spells(b); got != want {
			t.Errorf("%q: got %v, want %v", pair, got, want)
		}
	}
}
