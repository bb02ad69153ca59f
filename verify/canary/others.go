package canary

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"deepswe/env"
)

// A wrong value must not show that it is wrong: it may be the smaller or the larger number, and any letter. Code under
// test may read the test and look for what does not fit there, so a wrong value consists of words and numbers from the
// same file if possible: from the same test if the right one occurs there elsewhere, as an input for example.

// versions is the number of texts that an expectation may have, with the right one.
const versions = 8

// otherVersions is the number of those texts without the right one.
const otherVersions = versions - 1

// chance chooses wrong values. It knows the words and numbers of the test, and those of the rest of its file.
type chance struct {
	*rand.Rand
	test, file map[string]int
}

var (
	words    = env.Pattern(`[A-Za-z]+|[0-9]+`)
	literals = env.Pattern(`"[^"\n]*"|'[^'\n]*'|\b[0-9]+\b`)
)

// newChance returns the chance for a test. file are the words of its file.
func newChance(r *rand.Rand, test []byte, file map[string]int) *chance {
	return &chance{r, wordsOf(test), file}
}

// wordsOf counts the words and numbers in the literals of a source.
func wordsOf(source []byte) map[string]int {
	count := map[string]int{}
	for _, literal := range literals().FindAll(source, -1) {
		for _, word := range words().FindAllString(string(literal), -1) {
			count[word]++
		}
	}
	return count
}

// known returns what may be used instead of a word: others of the same kind in random order, which occur in the test if
// the word occurs there once more, or else only in other tests of the file.
func (c *chance) known(word string) []string {
	inside, seen := c.test[word] > 1, c.file
	if inside {
		seen = c.test
	}
	var others, further []string
	for other := range seen {
		switch alike := bits.Len(uint(len(other))) == bits.Len(uint(len(word))); {
		case other == word || kindOf(other) != kindOf(word) || !inside && c.test[other] > 0:
		case alike:
			others = append(others, other)
		default:
			further = append(further, other)
		}
	}
	if len(others) == 0 {
		others = further
	}
	slices.Sort(others)
	c.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others[:min(len(others), otherVersions)]
}

// ordinaryWords may stand for one that has no other of its kind in its file: a word that is misspelt gives itself away.
const ordinaryWords = `air arm bag bar bed box bus cap car cup day dog door east end eye fan fig fly fox gate gold hand
	hill home ice iron jar key lake lamp land leaf left line lion main moon nail name nest north oak oil open page park
	part pear pine pipe plan rain red ring road rock roof root rose salt sand seed ship shop side silk sky snow soap song
	star stem tail tea tent tide time town tree vase view wall wave west wind wing wolf wood yard apple beach bread brick
	brown chair chalk clock cloud coast cream dance earth field first floor fruit glass grass green heart horse house
	judge knife lemon light maple metal mouse music night ocean olive paint paper plant plate point queen right river
	round scale sheep shirt short small smoke snake solid south spoon stone storm sugar table tiger title tooth touch
	tower train under uncle value water white world young animal basket bottle branch bridge bright butter button carpet
	castle circle copper corner cotton desert dinner doctor engine father finger flower forest garden ground hammer
	harbor island jacket kettle ladder letter market middle mirror mother needle office orange palace pencil person
	pocket potato rabbit record ribbon school second shadow silver simple spring square street summer teacher ticket
	valley velvet window winter yellow balance bedroom blanket cabinet chapter climate compass country curtain evening
	feather freedom general harvest holiday journey kitchen leather library machine morning musical natural nothing
	outside package pattern picture pleasant present program quarter railway science serious station student sunrise
	surface thunder uniform village weather whisper birthday building calendar carriage daughter distance elephant
	exchange festival hospital language material medicine mountain movement neighbor ordinary platform position powerful
	question sandwich shoulder standard straight strength surprise sunshine together triangle umbrella vacation vegetable
	adventure afternoon beautiful breakfast butterfly chocolate classroom community direction education furniture
	important invention newspaper orchestra passenger president professor secretary signature statement telephone
	telescope temperature understand whispering`

// ordinary returns ordinary words of about the same length in random order, written as a word of at least three letters
// is; none for others.
func (c *chance) ordinary(word string) []string {
	written := map[string]func(string) string{
		"a": strings.ToLower, "AA": strings.ToUpper, "Aa": func(s string) string { return strings.ToUpper(s[:1]) + s[1:] },
	}[kindOf(word)]
	if written == nil || len(word) < 3 {
		return nil
	}
	var others []string
	for other := range strings.FieldsSeq(ordinaryWords) {
		if more := len(other) - len(word); -1 <= more && more <= 1 && !strings.EqualFold(other, word) {
			others = append(others, written(other))
		}
	}
	c.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others[:min(len(others), otherVersions)]
}

// kindOf returns what a word must have in common with another that it is exchanged for: the case of its letters.
func kindOf(word string) string {
	switch first, last := word[0], word[len(word)-1]; {
	case last < 'A':
		return "0"
	case last < 'a':
		return "AA"
	case first < 'a':
		return "Aa"
	}
	return "a"
}

// otherNumbers returns other numbers, in random order: some of the file or, if there are not two, those of a range
// of [versions] that contains n anywhere. They are not below least, nor above most, unless n is. A number of the test
// that divides n divides them, too, where there is room for it: 36 of an input of 3 may be 33 or 42.
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

// otherDecimals returns other numbers with the same decimals, or none if the text is not a decimal number. Integers
// are not below least, unless the number is.
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
	case 0 < f && f < 1 && 0 < digits && digits < 10: // a share, or a probability, stays one
		shares := &chance{Rand: r.Rand}
		return mapped(otherNumbers(int(math.Round(f*scale)), 1, int(scale)-1, shares), func(n int) string {
			return strconv.FormatFloat(float64(n)/scale, 'f', digits, 64)
		})
	case f >= 0: // and an amount does not become a debt
		least = max(-versions, -int(f))
	}
	return mapped(otherNumbers(0, least, versions, r), func(by int) string {
		return strconv.FormatFloat(f+float64(by), 'f', digits, 64)
	})
}

// otherTexts returns other texts: with another word of the file in place of the last one, wherever that is, or, if
// there is none, an ordinary word, or else with another last character. Of JSON's own words there is one other. The
// text may contain escapes.
func otherTexts(text string, r *chance) []string {
	const letters, digits = "abcdeghiklmnoprstuvwxyz", "0123456789"
	if all := words().FindAllStringIndex(text, -1); len(all) > 0 {
		from, to := all[len(all)-1][0], all[len(all)-1][1]
		if other := opposite[text[from:to]]; other != "" {
			return []string{text[:from] + other + text[to:]}
		}
		word := text[from:to]
		others := r.known(word)
		if len(others) == 0 {
			others = r.ordinary(word)
		}
		if len(others) == 0 && strings.Contains(text[:from], word) {
			others = otherTexts(word, &chance{Rand: r.Rand})
		}
		if len(others) > 0 && !strings.HasSuffix(text[:from], `\`) {
			return mapped(others, func(s string) string { return everywhere(text, word, s) })
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
	var others []string
	for _, i := range r.Perm(len(choice))[:otherVersions] {
		others = append(others, text[:len(text)-1]+choice[i:i+1])
	}
	return others
}

// opposite are the words of JSON that no other word can take the place of.
var opposite = map[string]string{"true": "false", "false": "true", "null": "0"}

// everywhere exchanges a word of a text for another one wherever it is, as the name of a tag that begins and ends.
func everywhere(text, word, other string) string {
	if from := strings.LastIndex(text, word); strings.Contains(text, `\`) { // a letter of an escape is no word
		return text[:from] + other + text[from+len(word):]
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
