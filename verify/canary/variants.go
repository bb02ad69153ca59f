package canary

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
)

// A patch that knows the inputs of a test passes it without being a fix. It does not pass a variant, in which each
// value that the test repeats, such as a name that it puts in and expects to get out, is replaced everywhere.

// variants returns the ways to give a test other values that fit together, those that change most first. Not all are
// right: the code may give a meaning to a value.
func variants(data []byte, from, to int, r *rand.Rand) (all []mutation) {
	test := data[from:to]
	at := map[string][]int{}
	for _, l := range literals().FindAllIndex(test, -1) {
		if bytes.IndexByte(test[l[0]:l[1]], '\\') >= 0 {
			continue
		}
		for _, w := range words().FindAllIndex(test[l[0]:l[1]], -1) {
			word := string(test[l[0]+w[0] : l[0]+w[1]])
			at[word] = append(at[word], from+l[0]+w[0])
		}
	}
	code := literals().ReplaceAll(test, []byte("0"))
	used := maps.Clone(at)
	var texts, numbers []edit
	for _, word := range slices.Sorted(maps.Keys(at)) {
		if len(at[word]) < 2 || regexp.MustCompile(`\b`+word+`\b`).Match(code) {
			continue
		}
		other := renamed(word, r)
		for tries := 0; used[other] != nil && tries < versions; tries++ {
			other = renamed(word, r)
		}
		if used[other] != nil {
			continue
		}
		used[other] = at[word]
		into := &texts
		if kindOf(word) == "0" {
			into = &numbers
		}
		for _, i := range at[word] {
			*into = append(*into, edit{i, i + len(word), other})
		}
	}
	add := func(key string, edits []edit) {
		all = append(all, mutation{kind: Variant, key: key, ways: [][]edit{edits}})
	}
	if len(texts) > 0 && len(numbers) > 0 {
		add("values", slices.Concat(texts, numbers))
	}
	if len(texts) > 0 {
		add("texts", texts)
	}
	if len(numbers) > 0 {
		add("numbers", numbers)
	}
	return all
}

// renamed returns a random word of the same form.
func renamed(word string, r *rand.Rand) string {
	out := []byte(word)
	for i, c := range out {
		switch {
		case c <= '9':
			out[i] = byte('1' + r.IntN(9))
		case c <= 'Z':
			out[i] = byte('A' + r.IntN(26))
		default:
			out[i] = byte('a' + r.IntN(26))
		}
	}
	return string(out)
}
