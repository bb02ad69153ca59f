package canary

import (
	"strings"
	"testing"
)

// Where a test says in words what it expects, it says so of the wrong value as well.
func TestRepeated(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, was, becomes, want string }{
		{"def test_a():\n    # 20 is right\n    assert f(20) == 20, 'not 20'\n", "assert f(20) == 20, 'not 20'",
			"assert f(20) == 17, 'not 20'", "def test_a():\n    # 17 is right\n    assert f(20) == 17, 'not 17'\n"},
		{"def test_a():\n    \"\"\"Gives book.\"\"\"\n    assert f() == 'book'\n", "assert f() == 'book'", "assert f() == 'boop'",
			"def test_a():\n    \"\"\"Gives boop.\"\"\"\n    assert f() == 'boop'\n"},
		{"// TestA wants 200, not 2000.\nfunc TestA(t *testing.T) {\n\tif f() != 200 {\n\t\tt.Fatal(\"200\") // 200\n\t}\n}\n", "200 {", "203 {",
			"// TestA wants 203, not 2000.\nfunc TestA(t *testing.T) {\n\tif f() != 203 {\n\t\tt.Fatal(\"203\") // 203\n\t}\n}\n"},
		{"assert f(1) == 1  # 1\n", "assert f(1) == 1", "assert f(1) == 2", "assert f(1) == 2  # 2\n"},
		{"assert f()  # f\n", "assert f()", "assert not (f())", "assert not (f())  # f\n"},
	} {
		at := strings.LastIndex(tc.text, tc.was)
		edits, value, other := repeated([]byte(tc.text), edit{at, at + len(tc.was), tc.becomes}, nil)
		edits = append(edits, retold([]byte(tc.text), edits, map[string]string{value: other})...)
		if got := string(apply([]byte(tc.text), edits)); got != tc.want {
			t.Errorf("got\n%s\nwant\n%s", got, tc.want)
		}
	}
}
