package verify

import (
	"slices"
	"testing"

	"deepswe/verify/allowlist"
)

// The files that the strict run withholds are recorded, with what replaces each and whether the tests need them.
func TestWithheld(t *testing.T) {
	t.Parallel()
	before := with(wrongAnswer, "setup.cfg", "[tool]\nstrict = yes\n", "pytest.ini", "x\n", "package.json",
		`{"main": "a.js", "scripts": {"test": "x"}}`,
		"lib/c.js", "require('./test/d')\nread('specs/c.json')\n", "lib/test/d.js", "1\n")
	gold := gitDiff(t, before, with(before, "answer", "42\n", "setup.cfg", "[tool]\nstrict = no\n"))
	for _, tc := range []struct {
		name   string
		change []string
		// check is a line of shell that looks at what is there while the tests run.
		check  string
		want   []Withheld
		reward float64
	}{
		{name: "nothing but the fix", change: []string{"src/new.py", "x = 1\n", "table.json", "{}\n"}, reward: 1},
		{
			name:   "a module in a new directory called spec",
			change: []string{"lib/a.js", "require('./spec/b')\n", "lib/spec/b.js", "1\n"}, reward: 1,
		},
		{
			name: "a module that nothing loads there", change: []string{"lib/spec/b.js", "1\n"},
			want: []Withheld{{"lib/spec/b.js", allowlist.Tests, Original}}, reward: 1,
		},
		{
			name:   "a module in a directory called test, whose others the product loads",
			change: []string{"lib/a.js", "require('./test/e')\n", "lib/test/e.js", "1\n"}, reward: 1,
		},
		{
			name: "data that the repository's own source names", change: []string{"lib/specs/c.json", "{}\n"}, reward: 1,
		},
		{
			name: "data that nothing names", change: []string{"lib/spec/c.txt", "1\n"},
			want: []Withheld{{"lib/spec/c.txt", allowlist.Tests, Original}}, reward: 1,
		},
		{
			name: "a setting", change: []string{"pytest.ini", "y\n"},
			want: []Withheld{{"pytest.ini", allowlist.Configuration, Original}}, reward: 1,
		},
		{
			name: "a setting that the tests need", change: []string{"pytest.ini", "y\n"}, check: "grep -q y pytest.ini",
			want: []Withheld{{"pytest.ini", allowlist.Configuration, Original}},
		},
		{
			name: "the solution's setting", change: []string{"setup.cfg", "[tool]\nstrict = never\n"},
			check: "grep -q -e no -e never setup.cfg",
			want:  []Withheld{{"setup.cfg", allowlist.Configuration, Solution}}, reward: 1,
		},
		{
			name: "more than the solution's setting", change: []string{"setup.cfg", "[tool]\nstrict = never\n"},
			check: "grep -q never setup.cfg",
			want:  []Withheld{{"setup.cfg", allowlist.Configuration, Solution}},
		},
		{
			name: "just the solution's setting", change: []string{"setup.cfg", "[tool]\nstrict = no\n"}, reward: 1,
		},
		{
			name: "where a package begins", change: []string{"package.json", `{"main": "b.js", "scripts": {"test": "y"}}`},
			check: "grep -q b.js package.json",
			want:  []Withheld{{"package.json", allowlist.Build, Parts}}, reward: 1,
		},
		{
			name: "how a package is tested", change: []string{"package.json", `{"main": "b.js", "scripts": {"test": "y"}}`},
			check: `grep -q '"y"' package.json`,
			want:  []Withheld{{"package.json", allowlist.Build, Parts}},
		},
		{
			name: "a new directory of metadata", change: []string{"a-1.dist-info/entry_points.txt", "[pytest11]\nx = y\n"},
			check: "test -e a-1.dist-info/entry_points.txt",
			want:  []Withheld{{"a-1.dist-info/entry_points.txt", allowlist.Metadata, Original}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			task := wrongAnswerTask()
			task.Tests.GoldPatch = string(gold)
			if tc.check != "" {
				task.Tests.Files["tests/hidden"] += tc.check + " || echo 'FAILED tests/test.py::answer'\n"
			}
			patch := gitDiff(t, before, with(before, append(tc.change, "answer", "42\n")...))
			e := Evaluator{Provider: newScratch(t, before)}
			v, err := e.Evaluate(t.Context(), task, patch)
			if err != nil || v.Status != Resolved || v.Reward != tc.reward {
				t.Fatalf("%s with reward %v, want %v: %s, %v\n%s", v.Status, v.Reward, tc.reward, v.Detail, err, v.Log)
			}
			if !slices.Equal(v.Withheld, tc.want) {
				t.Errorf("withheld %v, want %v", v.Withheld, tc.want)
			}
			if v.NeedsWithheld != (tc.reward == 0) {
				t.Errorf("needs what was withheld: %v", v.NeedsWithheld)
			}
		})
	}
}
