package literal

import (
	"slices"
	"strings"
	"unicode"
)

// The words of numbers below twenty, and of tens from twenty.
var (
	small = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen " +
		"fifteen sixteen seventeen eighteen nineteen")
	tens = strings.Fields("twenty thirty forty fifty sixty seventy eighty ninety")
)

// Spelled reports whether a title says a whole number below a million in words of English: "thirty_six", "ThirtySix".
func (v Value) Spelled(title string) bool {
	if v.kind != number || !v.number.IsInt() || !v.number.Num().IsInt64() {
		return false
	}
	n := v.number.Num().Int64()
	if n = max(n, -n); n < 2 || n >= 1e6 {
		return false
	}
	said := slices.DeleteFunc(wordsOf(title), func(word string) bool { return word == "and" })
	spelled := spell(n)
	for i := range said {
		if len(said)-i >= len(spelled) && slices.Equal(said[i:i+len(spelled)], spelled) {
			return true
		}
	}
	return false
}

// spell returns the words of a number.
func spell(n int64) []string {
	switch {
	case n == 0:
		return nil
	case n < 20:
		return small[n : n+1]
	case n < 100:
		return append([]string{tens[n/10-2]}, spell(n%10)...)
	case n < 1000:
		return append(append(slices.Clone(spell(n/100)), "hundred"), spell(n%100)...)
	}
	return append(append(slices.Clone(spell(n/1000)), "thousand"), spell(n%1000)...)
}

// wordsOf returns the words of a title in lower case: what is not a letter ends one, and a capital after a small letter
// begins one.
func wordsOf(title string) []string {
	var b strings.Builder
	lower := false
	for _, r := range title {
		if lower && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		if lower = unicode.IsLower(r); !unicode.IsLetter(r) {
			r = ' '
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}
