package canary

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"

	"deepswe/env"
)

// chance chooses wrong values. It knows the words and numbers of the test, and those of its file.
type chance struct {
	*rand.Rand
	test, quoted map[string]int
	file         vocabulary
	// earlier are the words and numbers of the test that the repository has.
	earlier map[string]int
}

// vocabulary is what a file says.
type vocabulary struct {
	// words are the words and numbers in its literals, quoted those of them that are in strings, names those outside of
	// literals.
	words, quoted, names map[string]int
	// imported are the names that it imports only for what its tests expect.
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
	return &chance{Rand: r, test: wordsOf(test), quoted: quotedOf(test), file: file}
}

// wordsOf counts the words and numbers in the literals of a source.
func wordsOf(source []byte) map[string]int {
	return countWords(bytes.Join(literals().FindAll(source, -1), []byte(" ")))
}

// quotedOf counts the words and numbers in the strings of a source.
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

// standing is where a word of a test occurs: in strings of the rest of the file, in its numbers, and as a name
// anywhere.
type standing struct{ quoted, bare, named bool }

func (c *chance) standing(word string) standing {
	quoted := c.file.quoted[word] - c.quoted[word]
	return standing{quoted > 0, c.file.words[word]-c.test[word] > quoted, c.file.names[word] > 0}
}

// stands reports whether other may take the place of word without standing out. Both must be of the same kind. If the
// test's literals have word more than once, they must have other, too; if not, they must not have other, and both
// must occur at the same kinds of places elsewhere.
func (c *chance) stands(other, word string) bool {
	switch {
	case other == word || kindOf(other) != kindOf(word):
		return false
	case c.test[word] > 1:
		return c.test[other] > 0
	}
	return c.test[other] == 0 && c.standing(other) == c.standing(word)
}

// fits reports whether an edit leaves a text that may well have been there. A word that occurs nowhere else may look
// misspelt, unless it replaces an ordinary one.
func (c *chance) fits(data []byte, way []edit) bool {
	before, after, _, _ := changed(data, way[0])
	was, is := words().FindAllString(before, -1), words().FindAllString(after, -1)
	if len(was) != len(is) || inverts().MatchString(before+after) { // odd judges these
		return true
	}
	for i, word := range is {
		switch {
		case word == was[i]:
		case c.earlier[was[i]] > 0: // who knows that test knows that only new words are wrong ones
			return false
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
	for _, all := range []map[string]int{c.test, c.file.words, c.file.names} {
		for other := range all {
			switch alike := bits.Len(uint(len(other))) == bits.Len(uint(len(word))); {
			case !c.stands(other, word):
			case alike:
				others = append(others, other)
			default:
				further = append(further, other)
			}
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

// ordinaryWords may stand for each other. Nothing may stand for any other word that occurs nowhere else in its file:
// one of these would show by being in this list, and an invented one by being misspelt.
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

// ordinary returns ordinary words that may replace an ordinary word, of about the same length and in the same case,
// in random order.
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
