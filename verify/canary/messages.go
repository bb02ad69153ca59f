package canary

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/lexer"
)

// What a check says when it fails may name what it expects in any words: "not 72/2" for 36, or 3*12. No test needs that
// either.

// essential matches the parts of a message that must agree with its arguments.
var essential = env.Pattern(`%[-+# 0-9.*\[\]]*[a-zA-Z%]`)

// placeholder matches the parts of Rust's messages that must agree with their arguments.
var placeholder = env.Pattern(`\{[^{}]*\}`)

// hush blanks a message inside its quotation marks, except for the parts that needed matches.
func hush(quoted []byte, needed func() *regexp.Regexp) {
	inner := bytes.TrimLeft(quoted, "rRbBuUfF")
	quotes := []string{`"""`, "'''", `"`, "'", "`"}
	at := slices.IndexFunc(quotes, func(quote string) bool { return bytes.HasPrefix(inner, []byte(quote)) })
	if at < 0 {
		return
	}
	inner = bytes.TrimSuffix(inner[len(quotes[at]):], []byte(quotes[at]))
	from := 0
	for _, at := range append(needed().FindAllIndex(inner, -1), []int{len(inner), len(inner)}) {
		blank(inner[from:at[0]])
		from = at[1]
	}
}

// level replaces all digits of a number by 1.
func level(number []byte) {
	digits := "0123456789"
	if len(number) > 2 && number[0] == '0' && strings.IndexByte("xXbBoO", number[1]) >= 0 {
		if number[1]|' ' == 'x' {
			digits += "abcdefABCDEF"
		}
		number = number[2:]
	}
	for i, c := range number {
		if strings.IndexByte(digits, c) >= 0 {
			number[i] = '1'
		}
	}
}

// checkers match the calls of a language's assertion functions, by the number of arguments before the message. assert
// is set for a language with an assert statement.
type checkers struct {
	assert bool
	after  [4]func() *regexp.Regexp
}

var (
	pythonCheckers = checkers{assert: true, after: [4]func() *regexp.Regexp{
		0: env.Pattern(`^(self|cls|pytest)\.fail$|^AssertionError$`),
		1: env.Pattern(`^(self|cls)\.assert(True|False|IsNone|IsNotNone)_?$`),
		2: env.Pattern(
			`^(self|cls)\.assert(Not)?(Almost)?(Equals?|Is|In|IsInstance|Greater|Less|GreaterEqual|LessEqual|\w+Equal)$`),
	}}
	javaScriptCheckers = checkers{after: [4]func() *regexp.Regexp{
		0: env.Pattern(`^(assert|expect|t)\.fail$`),
		1: env.Pattern(
			`^(assert|expect)$|^(assert|t)\.(ok|notOk|isTrue|isFalse|isNull|isUndefined|isOk|true|false|truthy|falsy)$`),
		2: env.Pattern(`^(assert|t)\.((not)?([dD]eep|[sS]trict|[dD]eepStrict|[lL]oose)?[eE]qual|notStrictEqual|` +
			`notDeepStrictEqual|include|lengthOf|same|is)$`),
	}}
	// The first pattern leaves out fmt.Errorf, because tests compare with the errors that it returns, and assert.Error,
	// whose arguments call the code under test.
	goCheckers = checkers{after: [4]func() *regexp.Regexp{
		0: env.Pattern(`^(\w{1,2}|test\w*|suite|\))\.(Error|Fatal|Log|Skip)f?$`),
		2: env.Pattern(`^(assert|require)\.(True|False|Nil|NotNil|NoError|Error|Empty|NotEmpty|Zero|NotZero)f?$`),
		3: env.Pattern(`^(assert|require)\.(Not)?(Equal|EqualValues|Same|Contains|Len|IsType|ErrorIs|ErrorContains|` +
			`EqualError|Greater|Less|JSONEq|ElementsMatch)f?$`),
	}}
)

// hushAll blanks the messages of all checks, and what is assigned to variables that are used only as messages.
func (c checkers) hushAll(data []byte, tokens []lexer.Token) {
	variables := map[string]int{} // how often each is a message
	for i, t := range tokens {
		if t.Kind != 'w' || i+1 == len(tokens) {
			continue
		}
		called := t.Text
		if i > 1 && tokens[i-1].Text == "." {
			called = tokens[i-2].Text + "." + t.Text
		}
		if c.assert && called == "assert" {
			variables[hushFrom(data, tokens[i+1:], t.Depth, 1, false)]++
			continue
		}
		if tokens[i+1].Text != "(" {
			continue
		}
		several := c.assert && t.Text == "fail" && called != "pytest.fail" && severalArguments(tokens[i+2:], t.Depth+1)
		for commas, pattern := range c.after {
			if pattern != nil && pattern().MatchString(called) && !several { // unittest's own has a single argument
				variables[hushFrom(data, tokens[i+2:], t.Depth+1, commas, true)]++
			}
		}
	}
	for name, uses := range variables {
		hushVariable(data, tokens, name, uses)
	}
}

// severalArguments reports whether a call has more than one argument, given the tokens after its opening bracket and
// their depth of brackets.
func severalArguments(tokens []lexer.Token, depth int) bool {
	end := slices.IndexFunc(tokens, func(t lexer.Token) bool { return t.Depth < depth })
	comma := slices.IndexFunc(tokens, func(t lexer.Token) bool { return t.Text == "," && t.Depth == depth })
	return comma >= 0 && comma+1 < end
}

// hushFrom blanks the strings of a message, and replaces the digits of its numbers by 1. The message begins after the
// given number of commas at the given depth of brackets, and ends with the call or, in a statement, with the line.
// Indices stay as they are. If the message is a variable, it returns its name.
func hushFrom(data []byte, tokens []lexer.Token, depth, commas int, call bool) (variable string) {
	end := slices.IndexFunc(tokens, func(t lexer.Token) bool { return t.Depth < depth })
	if end < 0 {
		end = len(tokens)
	}
	for i := 1; !call && i < end; i++ {
		if tokens[i].Depth == depth && ends(data[tokens[i-1].To:tokens[i].From]) {
			end = i
		}
	}
	indexed := -1 // the depth around the index
	for i, t := range tokens[:end] {
		switch {
		case t.Text == "," && t.Depth == depth:
			commas--
		case commas > 0:
		case t.Text == "[" && indexed < 0 && indexes(tokens, i):
			indexed = t.Depth
		case t.Text == "]" && t.Depth == indexed:
			indexed = -1
		case indexed >= 0:
		case t.Kind == 's', t.Kind == 't':
			hush(data[t.From:t.To], essential)
		case t.Kind == 'd':
			level(data[t.From:t.To])
		}
	}
	if end > 1 && commas <= 0 && tokens[end-1].Kind == 'w' && strings.Contains(",=", tokens[end-2].Text) {
		return tokens[end-1].Text
	}
	return ""
}

// hushVariable blanks what is assigned to a variable, if its only uses are the given number of messages.
func hushVariable(data []byte, tokens []lexer.Token, name string, uses int) {
	var given []int
	for i, t := range tokens {
		switch {
		case t.Kind != 'w' || t.Text != name:
		case i+1 < len(tokens) && tokens[i+1].Text == "=" && t.Depth == tokens[i+1].Depth &&
			(i == 0 || tokens[i-1].Text != "."):
			given = append(given, i+2)
		default:
			uses--
		}
	}
	if uses != 0 {
		return
	}
	for _, at := range given {
		hushFrom(data, tokens[min(at, len(tokens)):], tokens[at-2].Depth, 0, false)
	}
}

// indexes reports whether a bracket encloses an index, or the length in the type of an array.
func indexes(tokens []lexer.Token, at int) bool {
	if at > 0 && (tokens[at-1].Kind != 'o' || strings.Contains("])", tokens[at-1].Text)) {
		return true
	}
	return at+3 < len(tokens) && tokens[at+2].Text == "]" && tokens[at+3].Kind == 'w'
}

// ends reports whether a statement of Python ends in a gap between tokens outside of brackets.
func ends(gap []byte) bool {
	line, _, more := bytes.Cut(gap, []byte("\n"))
	return more && !bytes.HasSuffix(bytes.TrimRight(line, " \t\r"), []byte("\\"))
}
