package mine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env"
)

const sources = "def half(n):\n    return n // 2\n\n\ndef double(n):\n    return n * 2\n"

// A model's answer changes the file, or is refused with the reason.
func TestEdited(t *testing.T) {
	t.Parallel()
	place := func(name, old, now string) string {
		return "<<<<<<< " + name + "\n" + old + "=======\n" + now + ">>>>>>>\n"
	}
	for _, tc := range []struct{ name, answer, old, now, why string }{
		{"a place", place("a.py", "    return n // 2\n", "    return n // 3\n"), "// 2", "// 3", ""},
		{"with a text around it", "Here:\r\n" + place("a.py", "    return n * 2\n", "") + "Done.", "    return n * 2\n", "", ""},
		{"the first line", place("a.py", "def half(n):\n", "def half(n=1):\n"), "half(n)", "half(n=1)", ""},
		{"another file", place("c.py", "    return n // 2\n", ""), "", "", "the change has no file c.py"},
		{"lines that are not there", place("a.py", "    return n\n", ""), "", "", "the old lines are found 0 times in a.py"},
		{"a part of a line", place("a.py", "return n * 2\n", "return 2\n"), "", "", "the old lines are found 0 times in a.py"},
		{"lines that are there twice", place("b.py", "x\n", "y\n"), "", "", "the old lines are found 2 times in b.py"},
		{"no lines", place("a.py", "", "x\n"), "", "", "the old lines are blank"},
		{"no change", place("a.py", "    return n * 2\n", "    return n * 2\n"), "", "", "the new lines are the old ones"},
		{"nothing", "I cannot.", "", "", "it has no place in the form <<<<<<< path, =======, >>>>>>>"},
	} {
		want := bug{Why: tc.why}
		if tc.why == "" {
			want.Files = map[string]string{"a.py": strings.Replace(sources, tc.old, tc.now, 1)}
		}
		if diff := cmp.Diff(want, edited(map[string]string{"a.py": sources, "b.py": "x\nx\n"}, tc.answer)); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

// Whatever a model answers, only files of the change are edited.
func FuzzEdited(f *testing.F) {
	f.Add("<<<<<<< a.py\n    return n // 2\n=======\n    return n // 3\n>>>>>>>\n")
	f.Fuzz(func(t *testing.T, answer string) {
		b := edited(map[string]string{"a.py": sources}, answer)
		if _, known := b.Files["a.py"]; !known && b.Why == "" || len(b.Files) > 1 {
			t.Errorf("%+v", b)
		}
	})
}

// No synthetic bug is made of a commit whose own task is held out.
func TestAddHoldsOut(t *testing.T) {
	t.Parallel()
	task := func(id, commit string) env.Task { return env.Task{ID: id, Labels: map[string]string{"commit": commit}} }
	r := Report{Share: 0.5, Synthetic: &Made{Kinds: []string{"mutate"}}}
	tasks := r.Add(&Mined{
		Tasks: []env.Task{task("old", "1"), task("new", "2")}, Made: 3,
		Synthetic: &Mined{Tasks: []env.Task{task("old-wrong", "1"), task("new-wrong", "2")}},
	})
	var ids []string
	for _, one := range tasks {
		ids = append(ids, one.ID)
	}
	if got := strings.Join(ids, " "); got != "old-wrong old new" || r.Held != 1 || r.Synthetic.Sound != 1 || len(r.Kinds()) != 1 {
		t.Errorf("%s, of which %d are held out", got, r.Held)
	}
}
