package literal

import (
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"deepswe/env"
)

// Text is a text in a form in which it does not matter how words and numbers are written: "thirty-six", 0x24 and 036.0
// are 36, and "Dozens" is "dozen". Each element is a way to read the text: source code may have escape sequences,
// commas in numbers, and numbers that it computes from others.
type Text []string

// Read returns the form of a text.
func Read(source string) Text {
	ways := Text{normal(source)}
	for _, change := range []func(string) string{unescaped, ungrouped, pointed, computed} {
		if changed := change(source); changed != source {
			ways = append(ways, normal(changed))
		}
	}
	return ways
}

// Reckons reports whether a text has a word that says how a number comes from others, and that another text does not
// have: six squared is 36.
func (t Text) Reckons(known Text) bool {
	return slices.ContainsFunc(t, func(way string) bool {
		return slices.ContainsFunc(reckons().FindAllString(way, -1), func(word string) bool { return !known.contains(word) })
	})
}

// reckons matches such words in a text's normal form.
var reckons = env.Pattern(` (hal(f|ve)|third|quarter|(fif|six|seven|eigh|nin|ten|hundred|thousand)th|dozen|gross|` +
	`score|pair|couple|doubled?|twice|tripled?|thrice|squared?|cubed?|root|power|plus|minus|times|` +
	`percent|sum|product|million) `)

// Without returns a text without the occurrences of a number or a string.
func (t Text) Without(v Value) (rest Text) {
	for _, way := range t {
		rest = append(rest, strings.ReplaceAll(way, v.words(), " "))
	}
	return rest
}

// In reports whether a text contains all numbers and strings of a value, except for common ones.
func (v Value) In(t Text) bool {
	return v.all(func(one Value) bool { return t.contains(one.words()) || one.kind == text && t.joins(one.words()) })
}

// Mentioned reports whether a text contains all numbers of a value and all words of its strings, in any order, except
// for common values.
func (v Value) Mentioned(t Text) bool {
	return v.all(func(one Value) bool {
		absent := func(word string) bool { return !t.contains(" " + word + " ") }
		return !slices.ContainsFunc(strings.Fields(one.words()), absent)
	})
}

// Touched reports whether a text contains at least one word or number of a value.
func (v Value) Touched(t Text) bool {
	said := func(word string) bool { return t.contains(" " + word + " ") }
	return slices.ContainsFunc(v.Parts(), func(one Value) bool {
		return slices.ContainsFunc(strings.Fields(one.words()), said)
	})
}

// Alike reports whether two numbers or strings have the same words.
func (v Value) Alike(other Value) bool { return v.words() == other.words() }

// Parts returns the numbers and strings of a value, except for common ones.
func (v Value) Parts() (all []Value) {
	if len(v.items)+len(v.values) == 0 && !v.Common() {
		return []Value{v}
	}
	for _, one := range slices.Concat(v.items, v.values) {
		all = append(all, one.Parts()...)
	}
	return all
}

// all reports whether something holds for a value and for all that it contains, except for common values.
func (v Value) all(holds func(Value) bool) bool {
	fails := func(one Value) bool { return !one.Common() && !one.all(holds) }
	return holds(v) && !slices.ContainsFunc(slices.Concat(v.items, v.values), fails)
}

// contains reports whether words follow each other. Without words, there is nothing to look for.
func (t Text) contains(words string) bool {
	return words == " " || slices.ContainsFunc(t, func(way string) bool { return strings.Contains(way, words) })
}

// shortest is the minimum number of letters of words that are found even if a text divides them elsewhere: "mon" +
// "day".
const shortest = 5

// joins reports whether a text has words with other blanks between their letters: it may join or part them.
func (t Text) joins(words string) bool {
	letters := strings.ReplaceAll(words, " ", "")
	if utf8.RuneCountInString(letters) < shortest {
		return false
	}
	var parted *regexp.Regexp
	return slices.ContainsFunc(t, func(way string) bool {
		if !strings.Contains(strings.ReplaceAll(way, " ", ""), letters) {
			return false
		}
		if parted == nil { // most texts do not have the letters at all
			parted = regexp.MustCompile(" " + strings.Join(strings.Split(letters, ""), " ?") + " ")
		}
		return parted.MatchString(way)
	})
}

// words returns the words of a number or a string as normal does.
func (v Value) words() string { return normal(v.word()) }

var (
	// tokens matches numbers and words.
	tokens = env.Pattern(`0[xX][[:xdigit:]_]+|0[oO][0-7_]+|0[bB][01_]+|` +
		`\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d{1,2}\b)?|[\pL\pM]+`)
	escapes = env.Pattern(`\\(?:x[[:xdigit:]]{2}|u[[:xdigit:]]{4}|U[[:xdigit:]]{8}|u\{[[:xdigit:]]{1,6}\}|[abfnrtv0])`)
	grouped = env.Pattern(`\b\d{1,3}(?:,\d{3})+\b`)
	comma   = env.Pattern(`\b(\d+),(\d+)\b`)
	// products and sums match what source code computes from two numbers. A minus without blanks is more often a dash.
	products = env.Pattern(`\b(\d{1,9})\s*(\*|<<|\s//?\s)\s*(\d{1,9})\b`)
	sums     = env.Pattern(`\b(\d{1,12})(\s*\+\s*|\s+-\s+)(\d{1,12})\b`)
)

// normal returns the words and numbers of a text, with a blank before and after each.
func normal(source string) string {
	var words []string
	for _, token := range tokens().FindAllString(strings.Map(digit, norm.NFKC.String(source)), -1) {
		if '0' <= token[0] && token[0] <= '9' {
			words = append(words, decimal(token))
		} else {
			words = append(words, parted(token)...)
		}
	}
	return " " + strings.Join(append(counted(words), ""), " ")
}

// digit returns the digit of ASCII for one of another script, and any other character as it is.
func digit(r rune) rune {
	if r < utf8.RuneSelf || !unicode.IsDigit(r) {
		return r
	}
	zero := r // the digits of a script follow each other, but several such rows may do so, too
	for unicode.IsDigit(zero-1) && r-zero < 9 {
		zero--
	}
	return '0' + r - zero
}

// decimal returns a number as Go writes it.
func decimal(token string) string {
	token = strings.ReplaceAll(token, "_", "")
	if n, ok := new(big.Int).SetString(token, 0); ok && len(token) > 1 && strings.ContainsAny(token[1:2], "xXoObB") {
		return n.String()
	}
	if strings.Contains(token, ".") || strings.ContainsAny(token, "eE") {
		if f, err := strconv.ParseFloat(token, 64); err == nil {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
	}
	if token = strings.TrimLeft(token, "0"); token == "" {
		return "0"
	}
	return token
}

// parted returns the words of a name in lower case and without the "s" of plurals: a capital after a small letter, and
// one before a small letter, begin a word.
func parted(name string) (words []string) {
	runes, from := []rune(name), 0
	small := func(i int) bool { return i < len(runes) && unicode.IsLower(runes[i]) }
	for i := 1; i <= len(runes); i++ {
		if begins := i == len(runes) || unicode.IsUpper(runes[i]) && (small(i-1) || small(i+1)); !begins {
			continue
		}
		word := strings.ToLower(string(runes[from:i]))
		if len(word) > 3 && strings.HasSuffix(word, "s") && !strings.HasSuffix(word, "ss") {
			word = word[:len(word)-1]
		}
		words, from = append(words, word), i
	}
	return words
}

// unescaped replaces escape sequences by what they stand for.
func unescaped(source string) string {
	return escapes().ReplaceAllStringFunc(source, func(escape string) string {
		digits := strings.Trim(escape[2:], "{}")
		if code, err := strconv.ParseUint(digits, 16, 32); err == nil && utf8.ValidRune(rune(code)) {
			return string(rune(code))
		}
		return " "
	})
}

// ungrouped takes the commas out of numbers.
func ungrouped(source string) string {
	return grouped().ReplaceAllStringFunc(source, func(n string) string { return strings.ReplaceAll(n, ",", "") })
}

// pointed replaces the commas of decimal numbers by points.
func pointed(source string) string { return comma().ReplaceAllString(source, "$1.$2") }

// computed replaces products, and then sums, of numbers by their values.
func computed(source string) string {
	for _, pattern := range []*regexp.Regexp{products(), sums()} {
		const most = 4 // of the numbers in a chain
		for range most - 1 {
			source = pattern.ReplaceAllStringFunc(source, func(found string) string {
				parts := pattern.FindStringSubmatch(found)
				a, _ := strconv.Atoi(parts[1])
				b, _ := strconv.Atoi(parts[3])
				switch op := strings.TrimSpace(parts[2]); {
				case op == "*":
					a *= b
				case op == "+":
					a += b
				case op == "-":
					a -= b
				case op == "<<" && b < 32:
					a <<= b
				case b > 0 && a%b == 0:
					a /= b
				default:
					return found
				}
				return strconv.Itoa(a)
			})
		}
	}
	return source
}

// The words of numbers below twenty, and of tens from twenty.
var (
	small = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen " +
		"fifteen sixteen seventeen eighteen nineteen")
	tens = strings.Fields("twenty thirty forty fifty sixty seventy eighty ninety")
)

// counted returns words in which English numbers below a million are written in digits.
func counted(words []string) (all []string) {
	for len(words) > 0 {
		if n, used := count(words); used > 0 {
			all, words = append(all, strconv.Itoa(n)), words[used:]
			continue
		}
		all, words = append(all, words[0]), words[1:]
	}
	return all
}

// count returns the number with which words begin, and how many of them it takes.
func count(words []string) (n, used int) {
	if n, used = below1000(words); used == 0 || used == len(words) || words[used] != "thousand" {
		return n, used
	}
	more, took := below1000(words[used+1:])
	return n*1000 + more, used + 1 + took
}

// below1000 is count for numbers below a thousand.
func below1000(words []string) (n, used int) {
	if n, used = below100(words); used == 0 || used == len(words) || words[used] != "hundred" {
		return n, used
	}
	n, used = n*100, used+1
	rest := words[used:]
	if len(rest) > 1 && rest[0] == "and" {
		rest = rest[1:]
	}
	more, took := below100(rest)
	if took == 0 {
		return n, used
	}
	return n + more, len(words) - len(rest) + took
}

// below100 is count for numbers below a hundred.
func below100(words []string) (n, used int) {
	if len(words) == 0 {
		return 0, 0
	}
	if n = slices.Index(small, words[0]); n >= 0 {
		return n, 1
	}
	if n = slices.Index(tens, words[0]); n < 0 {
		return 0, 0
	}
	n = 10 * (n + 2)
	if len(words) > 1 {
		if one := slices.Index(small, words[1]); one > 0 && one < 10 {
			return n + one, 2
		}
	}
	return n, 1
}
