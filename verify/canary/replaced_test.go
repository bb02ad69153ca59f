package canary

import (
	"strings"
	"testing"
)

// An edit tells which value of a test becomes another one, and takes the one that other tests have in its place.
func TestReplaced(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, was, becomes, value, other, want string }{
		{"assert f(20) == 20\n", "f(20) == 20", "f(20) == 17", "20", "17", "assert f(20) == 17\n"},
		{"assert f() == 'book'\n", "'book'", "'boop'", "book", "boop", "assert f() == 'boop'\n"},
		{"if f() != 200 {\n", "200", "203", "200", "231", "if f() != 231 {\n"},
	} {
		at := strings.LastIndex(tc.text, tc.was)
		e, value, other := replaced([]byte(tc.text), edit{at, at + len(tc.was), tc.becomes},
			map[string]string{"200": "231"})
		got := string(apply([]byte(tc.text), []edit{e}))
		if got != tc.want || value != tc.value || other != tc.other {
			t.Errorf("got\n%s, %q and %q, want\n%s, %q and %q", got, value, other, tc.want, tc.value, tc.other)
		}
	}
}
