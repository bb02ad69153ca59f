package canary

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"deepswe/env"
)

// A wrong value must not show that it is wrong: it may be the smaller or the larger number, and any letter. Code under
// test may read the test and its file, and look for what does not fit there. So a wrong value occurs where the right
// one does: in the same test, as an input for example, in others, or nowhere (see [chance]).

// versions is the number of texts that an expectation may have, including the right one.
const versions = 8

// otherVersions is the number of those texts without the right one.
const otherVersions = versions - 1

// otherNumbers returns numbers other than n, in random order: those that the file has or, if it has fewer than two,
// [otherVersions] equally spaced ones among which n has a random place. They are between least and most, unless n is
// not. A number of the test that divides n divides them, too, where there is room for it: 36, of a test whose input is
// 3, may become 33 or 42.
func otherNumbers(n, least, most int, r *chance) []int {
	step := r.step(n)
	var others []int
	for _, word := range r.known(strconv.Itoa(n)) {
		other, err := strconv.Atoi(word)
		if err == nil && least <= other && other <= most && strconv.Itoa(other) == word && (other-n)%step == 0 {
			others = append(others, other)
		}
	}
	if len(others) > 1 {
		return others
	}
	below, above := room(n, least, most, step)
	if below+above < otherVersions {
		step = 1
		below, above = room(n, least, most, step)
	}
	first := max(0, otherVersions-above)
	from := n - step*(first+r.IntN(max(1, below-first+1)))
	others = nil
	for i := range versions {
		if other := from + i*step; other != n {
			others = append(others, other)
		}
	}
	fitting := slices.DeleteFunc(slices.Clone(others), func(other int) bool {
		return r.test[strconv.Itoa(n)] < 2 && r.standing(strconv.Itoa(other)) != r.standing(strconv.Itoa(n))
	})
	if len(fitting) > 0 {
		others = fitting
	}
	r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others
}

// room returns how many steps from n stay within the bounds, below and above it, each at most [otherVersions].
func room(n, least, most, step int) (below, above int) {
	low, high := max(n-otherVersions*step, min(n, least)), min(n+otherVersions*step, max(n, most))
	return (n - low) / step, (high - n) / step
}

// step returns the least common multiple of the numbers of the test that divide n and are smaller, or 1.
func (c *chance) step(n int) int {
	step := 1
	for word := range c.test {
		d, err := strconv.Atoi(word)
		if err != nil || d < 2 || d >= max(n, -n) || n%d != 0 {
			continue
		}
		a, b := step, d
		for b > 0 {
			a, b = b, a%b
		}
		step *= d / a
	}
	return step
}

// otherDecimals returns other numbers with the same number of decimals, or none if the text is not a decimal number.
// Integers are not below least, unless the number is.
func otherDecimals(text string, least int, r *chance) []string {
	if n, err := strconv.Atoi(text); err == nil {
		return mapped(otherNumbers(n, least, math.MaxInt, r), strconv.Itoa)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil
	}
	_, fraction, _ := strings.Cut(text, ".")
	digits := len(fraction)
	if strings.ContainsAny(fraction, "eE_") {
		digits = -1
	}
	least = -versions
	switch scale := math.Pow10(digits); {
	case 0 < f && f < 1 && 0 < digits && digits < 10: // a share or a probability stays below 1
		shares := &chance{Rand: r.Rand}
		return mapped(otherNumbers(int(math.Round(f*scale)), 1, int(scale)-1, shares), func(n int) string {
			return strconv.FormatFloat(float64(n)/scale, 'f', digits, 64)
		})
	case f >= 0: // and an amount does not become negative
		least = max(-versions, -int(f))
	}
	return mapped(otherNumbers(0, least, versions, r), func(by int) string {
		return strconv.FormatFloat(f+float64(by), 'f', digits, 64)
	})
}

// otherTexts returns texts other than this one: one of its words is replaced, wherever it occurs, preferably by words
// of the file. If no word can be replaced, its last character is. For JSON's own words (true), there is only one
// replacement. The text may contain escapes.
func otherTexts(text string, r *chance) []string {
	const letters, digits = "abcdeghiklmnoprstuvwxyz", "0123456789"
	all := words().FindAllStringIndex(text, -1)
	for _, i := range r.Perm(len(all)) {
		from, to := all[i][0], all[i][1]
		word := text[from:to]
		if other := opposite[word]; other != "" {
			return []string{text[:from] + other + text[to:]}
		}
		others := r.known(word)
		if len(others) == 0 {
			others = r.ordinary(word)
		}
		if len(others) == 0 && strings.Count(text, word) > 1 && !coded().MatchString(text) {
			others = otherTexts(word, &chance{Rand: r.Rand})
		}
		if len(others) > 0 && !strings.HasSuffix(text[:from], `\`) {
			return mapped(others, func(s string) string { return everywhere(text, from, to, s) })
		}
	}
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
	if last > '9' && coded().MatchString(text) {
		choice = strings.Map(func(r rune) rune {
			if strings.ContainsRune(text, r) {
				return r
			}
			return -1
		}, choice)
	}
	var others []string
	for _, i := range r.Perm(len(choice)) {
		other := text[:len(text)-1] + choice[i:i+1]
		if fits := r.fits([]byte(text), []edit{{0, len(text), other}}); fits || last > '9' {
			others = append(others, other)
		}
	}
	return others[:min(len(others), otherVersions)]
}

// coded matches codes such as #70d6da, in which a letter may only be replaced by others of the same code.
var coded = env.Pattern(`[A-Za-z][0-9]|[0-9][A-Za-z]`)

// opposite maps JSON's own words, which no ordinary word can replace, to what replaces them.
var opposite = map[string]string{"true": "false", "false": "true", "null": "0"}

// everywhere replaces a word wherever it occurs in a text, such as the name of a tag, which is at its beginning and
// its end.
func everywhere(text string, from, to int, other string) string {
	word := text[from:to]
	if strings.Contains(text, `\`) { // a letter of an escape is not a word
		return text[:from] + other + text[to:]
	}
	return words().ReplaceAllStringFunc(text, func(one string) string {
		if one == word {
			return other
		}
		return one
	})
}

// mapped applies a function to each element.
func mapped[T any](all []T, text func(T) string) []string {
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = text(v)
	}
	return texts
}
