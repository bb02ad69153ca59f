package python

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLines(t *testing.T) {
	t.Parallel()
	const src = "\ufeffdef f(a, # (\n\n\tb):\n# no code\n\tx = '''\n)''' \\\n  + 1\n\n        y = \"\\\"\" # end\r\n"
	lines, err := Lines([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		if src[l.End-len(l.Text):l.End] != l.Text || strings.TrimLeft(src[l.Start:l.End], " \t") != l.Text {
			t.Errorf("%q is not at %d to %d", l.Text, l.Start, l.End)
		}
		got = append(got, fmt.Sprint(l.First, l.Last, l.Indent, l.Opens))
	}
	if diff := cmp.Diff([]string{"1 3 0 true", "5 7 8 false", "9 9 8 false"}, got); diff != "" {
		t.Errorf("first, last, indentation, opens (-want +got):\n%s", diff)
	}
}

func TestLinesRefuses(t *testing.T) {
	t.Parallel()
	for src, says := range map[string]string{
		"x\ny = (\n":   "line 2: it is not valid: a bracket is not closed",
		"x)\n":         "line 1: it is not valid: a bracket is closed that was not opened",
		"(x]\n":        "line 1: it is not valid: the brackets do not match",
		"'x\n'\n":      "line 1: it is not valid: a string does not end on its line",
		"\n'''x\n''":   "line 2: it is not valid: a string does not end",
		"x = 1 \\ y\n": "line 1: it is not valid: something follows a backslash",
	} {
		if _, err := Lines([]byte(src)); !errors.Is(err, ErrSyntax) || err.Error() != says {
			t.Errorf("%q: error is %v, want %s", src, err, says)
		}
	}
}

func TestCode(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	const text = "f(a, [b], 'x, y') == {} # c, d"
	for at, depth := range Code(text) {
		fmt.Fprintf(&got, "%c%d", text[at], depth)
	}
	if want := "f0(1a1,1 1[2b2]2,1 1)1 0=0=0 0{1}1 0#0"; got.String() != want {
		t.Errorf("got %s, want %s", got.String(), want)
	}
}

// The lines of a text do not overlap.
func FuzzLines(f *testing.F) {
	f.Add("def f(a,\n  b):\n\tx = '''\n)'''\n")
	f.Fuzz(func(t *testing.T, src string) {
		lines, err := Lines([]byte(src))
		if err != nil {
			return
		}
		last := 0
		for _, l := range lines {
			if l.Start < last || l.Last < l.First {
				t.Errorf("%q: %+v begins before %d", src, l, last)
			}
			last = l.End
		}
	})
}
