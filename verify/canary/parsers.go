package canary

import (
	"bytes"
	"math/rand/v2"
	"path"
	"regexp"
	"strings"
)

// ForParser returns the writer for the tests whose log the given parser of package testlog reads; ok is false if there
// is none.
func ForParser(parser string) (w Writer, ok bool) {
	w, ok = writers()[strings.TrimPrefix(path.Base(parser), "parse_log_")]
	return w, ok
}

// writers maps the names of parsers to writers. Parsers that report whole files, or programs that read their cases from
// data, have none.
func writers() map[string]Writer {
	all := map[string]Writer{}
	for _, w := range []struct {
		writer  Writer
		parsers string
	}{
		{Python{}, "r2e_gym pytest astroid flask marshmallow pvlib pyvista sqlfluff xarray pytest_options pydicom requests " +
			"pylint pytest_v2 astropy scikit sphinx matplotlib seaborn sympy"},
		{Python{Undocumented: true}, "django"},
		{Golang{}, "gotest gotest_parents"},
		{JavaScript{}, "jest jest_json vitest calypso chart_js highlightjs immutable_js marked p5js openlayers bpmn_js " +
			"lighthouse prismjs next karma js js_2 js_4 npx"},
		{either{JavaScript{}, Shell{}}, "tap"},
	} {
		for _, p := range strings.Fields(w.parsers) {
			all[p] = w.writer
		}
	}
	return all
}

// Mentions reports whether a source may contain a test, given the file and the word of its [Writer.Address].
func Mentions(s Source, file, word string) bool {
	return (file == "" || sameFile(s.Name, file)) && bytes.Contains(s.Data, []byte(word))
}

// Widen changes a script that selects tests by name so that it selects their twins as well, in a random order.
func Widen(script string, twins []Twin, r *rand.Rand) string {
	names := map[string][]string{}
	var order []string
	for _, t := range twins {
		if len(names[t.Original]) == 0 {
			order = append(order, t.Original)
			names[t.Original] = []string{t.Original}
		}
		names[t.Original] = append(names[t.Original], t.Name)
	}
	for _, original := range order {
		if !strings.Contains(script, original) {
			continue
		}
		group := names[original]
		r.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
		script = widen(script, original, group)
	}
	return script
}

// widen does this for one test. It repeats words that address the test ("tests/a.py::test_b", "app.tests.C.test_b"),
// and adds alternatives to patterns ("-run TestB", "-k 'test_b or test_c'").
func widen(script, original string, group []string) string {
	quoted := regexp.QuoteMeta(original)
	address := regexp.MustCompile(`\S*(?:::|\w\.)` + quoted + `(\[[^\s\]]*\])?["']?(\s|$)`)
	if address.MatchString(script) {
		return address.ReplaceAllStringFunc(script, func(word string) string {
			space := word[len(strings.TrimRight(word, " \t\n")):]
			word = strings.TrimRight(word, " \t\n")
			var all []string
			for _, name := range group {
				all = append(all, strings.Replace(word, original, name, 1))
			}
			return strings.Join(all, " ") + space
		})
	}
	separator := "|"
	if regexp.MustCompile(`\s-k[ =]\S*[^|]*` + quoted).MatchString(script) {
		separator = " or "
	}
	pattern := regexp.MustCompile(`(^|[^\w/.-])` + quoted + `($|[^\w/.-])`)
	return pattern.ReplaceAllString(script, "${1}("+strings.ReplaceAll(strings.Join(group, separator), "$", "$$")+")${2}")
}
