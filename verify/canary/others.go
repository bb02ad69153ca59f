package canary

import (
	"bytes"
	"iter"
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

// chance chooses wrong values. It knows the words and numbers of the test, and those of its file.
type chance struct {
	*rand.Rand
	test, quoted map[string]int
	file         vocabulary
}

// vocabulary is what a file says.
type vocabulary struct {
	// words are the words and numbers in its literals, quoted those of them that are in strings, names those of the rest.
	words, quoted, names map[string]int
	// imported are the names that it imports for what its tests expect only.
	imported map[string]bool
}

func vocabularyOf(source []byte) vocabulary {
	return vocabulary{
		wordsOf(source), quotedOf(source), countWords(literals().ReplaceAll(source, []byte(" "))), onlyExpected(source),
	}
}

var (
	words    = env.Pattern(`[A-Za-z]+|[0-9]+`)
	literals = env.Pattern(`"[^"\n]*"|'[^'\n]*'|\b[0-9]+\b`)
)

// newChance returns the chance for a test of a file.
func newChance(r *rand.Rand, test []byte, file vocabulary) *chance {
	return &chance{r, wordsOf(test), quotedOf(test), file}
}

// wordsOf counts the words and numbers in the literals of a source.
func wordsOf(source []byte) map[string]int {
	return countWords(bytes.Join(literals().FindAll(source, -1), []byte(" ")))
}

// quotedOf counts those in strings.
func quotedOf(source []byte) map[string]int {
	return countWords(bytes.Join(slices.DeleteFunc(literals().FindAll(source, -1), func(one []byte) bool {
		return one[0] >= '0' && one[0] <= '9'
	}), []byte(" ")))
}

// countWords counts words and numbers.
func countWords(source []byte) map[string]int {
	n := map[string]int{}
	for _, word := range words().FindAll(source, -1) {
		n[string(word)]++
	}
	return n
}

// standing is where a word of a test occurs: in strings of others, in numbers of others, and as a name.
type standing struct{ quoted, bare, named bool }

func (c *chance) standing(word string) standing {
	quoted := c.file.quoted[word] - c.quoted[word]
	return standing{quoted > 0, c.file.words[word]-c.test[word] > quoted, c.file.names[word] > 0}
}

// stands reports whether a word may take the place of another one without showing it: both are of the same kind, and
// occur in the test's literals if the other one occurs there once more, or else at the same kinds of places.
func (c *chance) stands(other, word string) bool {
	switch {
	case other == word || kindOf(other) != kindOf(word):
		return false
	case c.test[word] > 1:
		return c.test[other] > 0
	}
	return c.test[other] == 0 && c.standing(other) == c.standing(word)
}

// fits reports whether an edit leaves a text that may well have been there. A word that occurs nowhere may be misspelt.
func (c *chance) fits(data []byte, way []edit) bool {
	before, after, _, _ := changed(data, way[0])
	was, is := words().FindAllString(before, -1), words().FindAllString(after, -1)
	if len(was) != len(is) || inverts().MatchString(before+after) { // which odd looks at
		return true
	}
	for i, word := range is {
		switch {
		case word == was[i]:
		case kindOf(word) == "0" && kindOf(was[i]) == "0":
			// Tests that expect the same in the same words are wrong together.
			alike := bytes.Count(data, []byte(lineAt(data, way[0].at))) - 1
			same := c.standing(word) == c.standing(was[i]) || c.file.words[was[i]]-c.test[was[i]] <= alike
			if c.test[was[i]] < 2 && !same {
				return false
			}
		case len(word) < 3, namesError(word) && namesError(was[i]) && (c.file.names[word] > 0) == (c.file.names[was[i]] > 1):
		case !c.stands(word, was[i]), c.standing(word) == standing{} && c.test[word] == 0 && !isOrdinary(was[i]):
			return false
		}
	}
	return true
}

// known returns what may be used instead of a word, in random order.
func (c *chance) known(word string) []string {
	var others, further []string
	for other := range c.pool() {
		switch alike := bits.Len(uint(len(other))) == bits.Len(uint(len(word))); {
		case !c.stands(other, word):
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
	others = slices.Compact(others)
	c.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others[:min(len(others), otherVersions)]
}

// ordinaryWords may stand for each other. A word that is none of them, and occurs nowhere else in its file, has no
// other that would not be known as wrong by that it is one of them, or that it is misspelt.
const ordinaryWords = `
	add air all any arm bag bar baz bed big bob box bus cap car cup day div dog end eye fan fig fly foo fox get
	ham hot ice jar key new oak odd oil old one put qux red set six sky tea ten two yes blue body both cold cool
	data dict door down each east eggs even fast file five four from func gate gold grey hand head high hill home
	href html http huge into iron item jane java john json july june keys lake lamp land last leaf left less line
	link lion list long main many mary moon more most nail name nest next nine node none null okay open over page
	para park part path paul pear pine pink pipe plan post rain read ring road rock roof root rose ruby salt same
	sand seed ship shop side silk slow snow soap some song spam span star stem stop tail temp tent test text that
	this tide time tiny town tree true type user vase view wall warm wave west wide wind wing with wolf wood yaml
	yard zero admin alice apple april beach begin black bread brick brown bytes chair chalk class clock cloud
	coast cream dance earth eight empty error field files first float floor fruit glass grass green heart hello
	horse house https items judge knife least lemon light maple march metal mouse music names night north ocean
	olive other paint paper patch plant plate point queen right river round scale seven sheep shirt short small
	smoke snake solid south spoon start stone storm sugar table tests three tiger title tooth touch tower train
	tuple uncle under users value water white world write young active animal august basket bottle branch bridge
	bright butter button carpet castle circle closed copper corner cotton create delete desert dinner doctor
	eleven engine father finger finish flower forest friday garden ground hammer harbor hidden island jacket
	kettle ladder letter market method middle mirror monday mother narrow needle number office orange palace
	pencil person pocket potato public python rabbit record remove ribbon school second shadow silver simple
	spring square street string summer sunday ticket twelve twenty update valley values velvet window winter
	yellow another balance bedroom blanket cabinet chapter climate compass country curtain enabled evening feather
	freedom general harvest holiday hundred integer january journey kitchen leather library machine missing
	morning musical natural nothing october outside package pattern picture present private program quarter
	railway science serious station student sunrise surface teacher thunder tuesday uniform unknown village
	visible weather whisper birthday building calendar carriage daughter december disabled distance elephant
	exchange february festival hospital inactive language material medicine mountain movement negative neighbor
	november ordinary platform pleasant position positive powerful question sandwich saturday shoulder standard
	straight strength sunshine surprise thousand thursday together triangle umbrella vacation adventure afternoon
	beautiful breakfast butterfly chocolate classroom community different direction education furniture important
	invention newspaper orchestra passenger president professor secretary september signature statement telephone
	telescope vegetable wednesday understand whispering temperature`

// ordinary returns ordinary words of about the same length in place of one, in random order, written as it is.
func (c *chance) ordinary(word string) []string {
	written := map[string]func(string) string{
		"a": strings.ToLower, "AA": strings.ToUpper, "Aa": func(s string) string { return strings.ToUpper(s[:1]) + s[1:] },
	}[kindOf(word)]
	if written == nil || !isOrdinary(word) {
		return nil
	}
	var others []string
	for other := range strings.FieldsSeq(ordinaryWords) {
		if more := len(other) - len(word); -1 <= more && more <= 1 && c.stands(written(other), word) {
			others = append(others, written(other))
		}
	}
	c.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others[:min(len(others), otherVersions)]
}

func namesError(word string) bool { return kindOfError().MatchString(word) }

func isOrdinary(word string) bool {
	return slices.Contains(strings.Fields(ordinaryWords), strings.ToLower(word))
}

// pool returns the words that may take the place of others.
func (c *chance) pool() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, all := range []map[string]int{c.test, c.file.words, c.file.names} {
			for other := range all {
				if !yield(other) {
					return
				}
			}
		}
	}
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

// otherTexts returns other texts: with another word of the file in place of one of them, wherever that is or, if there
// is none, with another last character. Of JSON's own words there is one other. The text may contain escapes.
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
		if len(others) == 0 && strings.Count(text, word) > 1 {
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
	var others []string
	for _, i := range r.Perm(len(choice)) {
		other := text[:len(text)-1] + choice[i:i+1]
		if fits := r.fits([]byte(text), []edit{{0, len(text), other}}); fits || last > '9' {
			others = append(others, other)
		}
	}
	return others[:min(len(others), otherVersions)]
}

// opposite are the words of JSON that no other word can take the place of.
var opposite = map[string]string{"true": "false", "false": "true", "null": "0"}

// everywhere exchanges a word of a text for another one wherever it is, as the name of a tag that begins and ends.
func everywhere(text string, from, to int, other string) string {
	word := text[from:to]
	if strings.Contains(text, `\`) { // a letter of an escape is no word
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
