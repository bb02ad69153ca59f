package canary

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// A wrong value must not show that it is wrong: it may be the smaller or the larger number, and any letter.

// versions is the number of texts that an expectation may have, with the right one.
const versions = 8

// otherNumbers returns the other numbers of a range of [versions] that contains n anywhere, in random order. The range
// stays between least and most, if n does.
func otherNumbers(n, least, most int, r *rand.Rand) []int {
	from := max(n-r.IntN(versions), min(n, least))
	from = min(from, max(n, most)-(versions-1))
	var others []int
	for i := range versions {
		if from+i != n {
			others = append(others, from+i)
		}
	}
	r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others
}

// otherDecimals returns other numbers with the same decimals, or none if the text is not a decimal number. Integers
// are not below least, unless the number is.
func otherDecimals(text string, least int, r *rand.Rand) []string {
	if n, err := strconv.Atoi(text); err == nil {
		return mapped(otherNumbers(n, least, math.MaxInt, r), strconv.Itoa)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil
	}
	return mapped(otherNumbers(0, -versions, versions, r), func(by int) string {
		return strconv.FormatFloat(f+float64(by), 'f', -1, 64)
	})
}

// otherTexts returns other texts, if possible of the same length with another last character. The text may contain
// escapes.
func otherTexts(text string, r *rand.Rand) []string {
	const letters, digits = "abcdeghiklmnoprstuvwxyz", "0123456789"
	if text == "" || strings.Contains(text, `\`) {
		return []string{text + "s"} // of several, the shortest would be the right one
	}
	last := text[len(text)-1]
	var choice string
	switch {
	case 'a' <= last && last <= 'z':
		choice = letters
	case 'A' <= last && last <= 'Z':
		choice = strings.ToUpper(letters)
	case '0' <= last && last <= '9':
		choice = digits
	default:
		return []string{text + "s"}
	}
	choice = strings.Replace(choice, string(last), "", 1)
	var others []string
	for _, i := range r.Perm(len(choice))[:versions-1] {
		others = append(others, text[:len(text)-1]+choice[i:i+1])
	}
	return others
}

// mapped applies a function to each element.
func mapped[T any](all []T, text func(T) string) []string {
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = text(v)
	}
	return texts
}
