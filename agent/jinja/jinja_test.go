package jinja_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepswe/agent/jinja"
)

// now is the time in testdata/reference.py, which made the expected values.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func readJSON(t testing.TB, path string) *jinja.Dict {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jinja.JSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	return v.(*jinja.Dict)
}

// lines decodes a file of JSON lines.
func lines[T any](t testing.TB, path string) []T {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []T
	for line := range bytes.Lines(raw) {
		var one T
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

type small struct{ Source, Text, Error string }

// Small templates, most of them random expressions and statements, give the same text as in transformers, or fail as
// they do there.
func TestSmall(t *testing.T) {
	t.Parallel()
	all := lines[small](t, "testdata/small.jsonl")
	if len(all) < 290 {
		t.Fatalf("%d templates", len(all))
	}
	for _, want := range all {
		template, err := jinja.Parse(want.Source)
		got := ""
		if err == nil {
			got, err = template.Render(readJSON(t, "testdata/vars.json"), now)
		}
		switch {
		case (err == nil) != (want.Error == "") || got != want.Text:
			t.Errorf("%q: %q, %v, want %q %s", want.Source, got, err, want.Text, want.Error)
		case err != nil && errors.Is(err, jinja.ErrRaised) != (want.Error == "raised"):
			t.Errorf("%q: %v, want %s", want.Source, err, want.Error)
		}
	}
}

// DEEPSWE_TEST_TEMPLATES names a folder with models' chat templates, which have their own licences. Their renderings
// have the same hashes as those of transformers.
func TestCorpus(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("DEEPSWE_TEST_TEMPLATES")
	if folder == "" {
		t.Skip("DEEPSWE_TEST_TEMPLATES names no folder with chat templates")
	}
	known := map[string]map[string]string{}
	for _, line := range lines[struct {
		Template string
		Renders  map[string]string
	}](t, "testdata/corpus.jsonl") {
		known[line.Template] = line.Renders
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	renders, templates := 0, 0
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		hashes, ok := known[digest(string(source))]
		if !ok {
			t.Logf("%s is not in the corpus", path)
			continue
		}
		templates++
		template, err := jinja.Parse(string(source))
		for name, want := range hashes {
			got := "error"
			if err == nil {
				got = outcome(template, conversation(t, name))
			}
			if got != want {
				t.Errorf("%s, %s: %s, want %s (%v)", filepath.Base(path), name, got, want, err)
			}
			renders++
		}
	}
	if templates == 0 {
		t.Fatalf("%s has no template of the corpus", folder)
	}
	t.Logf("%d renders of %d templates", renders, templates)
}

// conversation returns the variables of a conversation.
func conversation(t testing.TB, name string) *jinja.Dict {
	t.Helper()
	vars, _ := readJSON(t, "testdata/conversations.json").Get(name)
	d := vars.(*jinja.Dict)
	d.Set("documents", nil)
	for _, name := range []string{"bos", "eos", "pad", "unk"} {
		d.Set(name+"_token", map[string]string{"bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>"}[name])
	}
	return d
}

// outcome returns the hash of a rendering, or the class of its error.
func outcome(template *jinja.Template, vars *jinja.Dict) string {
	text, err := template.Render(vars, now)
	switch {
	case errors.Is(err, jinja.ErrRaised):
		return "raised"
	case err != nil:
		return "error"
	}
	return digest(text)[:16]
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Anything unknown is refused by name when the template is parsed, even if it would never run.
func TestUnknown(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"a\n{% include 'x' %}":                            `line 2: the tag "include" is not known here`,
		"{% raw %}{{ x }}":                                "a raw block without its end",
		"{% call f() %}{% endcall %}":                     `the tag "call"`,
		"{% if false %}{{ x | wordwrap(3) }}{% endif %}":  "the filter wordwrap",
		"{{ x | nobodys }}":                               "the filter nobodys",
		"{{ x is sameas y }}":                             "the test sameas",
		"{{ x.encode('utf-8') }}":                         "the method encode",
		"{{ x.__class__ }}":                               "the attribute \"__class__\"",
		"{{ cycler('a') }}":                               "the name cycler",
		"{{ self is defined }}":                           "the name self",
		"{% for x in y recursive %}{% endfor %}":          "a recursive loop",
		"{% macro m() %}{{ varargs }}{% endmacro %}":      "the name varargs",
		"{% generation %}{{ kwargs }}{% endgeneration %}": "the name kwargs",
		"{% macro m(a, a) %}{% endmacro %}":               "the parameter a",
		"{% macro m(caller) %}{% endmacro %}":             "the parameter caller",
		"{{ f(*args) }}":                                  "* in a call",
		"{% generation %}{% break %}{% endgeneration %}":  "break without a loop",
		"{% for x in y %}":                                "want [endfor else]",
		"{{ 'a":                                           "in a tag",
		"{{ (1] }}":                                       "unexpected ]",
		"{# a":                                            "a comment without its end",
		"{{ é }}":                                         "in a tag",
	} {
		if _, err := jinja.Parse(source); !errors.Is(err, jinja.ErrUnknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", source, err, want)
		}
	}
}

// Rendering always ends: a template that takes too long or needs too much is refused.
func TestBounds(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}":             "more than any",
		"{% set n = namespace(s='ab') %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}": "more than any",
		"{{ 'ab' * 2000000000 }}":                         "a string * a number",
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": "nested too deeply",
		"{{ range(100001) }}":                             "100000",
		"{{ strftime_now('%U') }}":                        "strftime_now with %U",
		"{{ 9999999999 * 9999999999 }}":                   "9999999999 * 9999999999",
		"{{ 'ß' | upper }}":                               "beyond ASCII",
		"{{ big * 0 }}":                                   "* 0",
		"{% for x in [1] %}{{ tools }}{% endfor %}{% if x %}{% set tools = 1 %}{% endif %}": "assigned later",

		"{{ 9223372036854775807 < 9223372036854775808.0 }}": "the order of",

		"{{ range(0, 9000000000000000000, 5000000000000000000) | list }}": "range of a number",

		"{% set a = 'ab' | map('upper') %}{% set b = a | map('lower') %}{{ a | list }}": "something else reads",

		"{% set a = 'ab' | map('upper') %}{% for c in a %}{{ a | list }}{% endfor %}": "something else reads",

		"{% set a = 'ab' | unique %}{{ 'xy' | map('default', a) | list }}": "with a generator",

		"{% set a = namespace(x=1) %}{{ [a] | map(attribute='x') | list }}": "of a namespace",

		"{% set a = namespace(x=1) %}{% macro m() %}{% set a.x = 2 %}{% endmacro %}{% for i in 'a' if m() %}{% endfor %}": "changes a namespace",
	} {
		template, err := jinja.Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := template.Render(jinja.NewDict("tools", nil, "big", math.Inf(1)), now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", source, err, want)
		}
	}
}

// JSON that only Python accepts is told apart from text that Python does not accept either.
func TestJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"a": NaN}`, `[-Infinity]`, `"\ud83d"`, `"\\\uD83D x\uDE00"`, `"\ude00\ud83d"`, `["NaN", NaN]`} {
		if _, err := jinja.JSON([]byte(text)); !errors.Is(err, jinja.ErrUnknown) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`"NaN"`, `"\ud83d\ude00"`, `"\\ud83d"`, `"\u00e9\n"`, strings.Repeat("9", 4300)} {
		if _, err := jinja.JSON([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`NaN,`, `{"a": nan}`, `"\ud83d`, strings.Repeat("9", 4301)} {
		if _, err := jinja.JSON([]byte(text)); err == nil || errors.Is(err, jinja.ErrUnknown) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// No source and no value makes Parse or Render crash.
func FuzzTemplate(f *testing.F) {
	for _, one := range lines[small](f, "testdata/small.jsonl") {
		f.Add(one.Source, "x")
	}
	f.Fuzz(func(t *testing.T, source, value string) {
		template, err := jinja.Parse(source)
		if err != nil {
			if !errors.Is(err, jinja.ErrUnknown) {
				t.Errorf("%q: %v", source, err)
			}
			return
		}
		vars := readJSON(t, "testdata/vars.json")
		vars.Set("s", value)
		one, err := template.Render(vars, now)
		if err != nil {
			return
		}
		if again, err := template.Render(vars, now); again != one || err != nil {
			t.Errorf("%q: first %q, then %q, %v", source, one, again, err)
		}
	})
}
