package canary

import (
	"bytes"
	"regexp"

	"deepswe/env"
	"deepswe/verify/lexer"
)

// What a check says when it fails may name what it expects in any words: "not 72/2" for 36. No test needs that either.

// essential matches the parts of a message that its language reads.
var essential = env.Pattern(`%[-+# 0-9.*\[\]]*[a-zA-Z%]|\{[^{}]*\}|\\.`)

// hush blanks a message in its quotation marks, but for what is essential.
func hush(quoted []byte) {
	inner := bytes.Trim(quoted, "rRbBuUfF")
	inner = bytes.Trim(inner, "\"'`")
	from := 0
	for _, at := range append(essential().FindAllIndex(inner, -1), []int{len(inner), len(inner)}) {
		blank(inner[from:at[0]])
		from = at[1]
	}
}

// checking matches functions that check something, as they are called. The argument with the message is the second or
// the third.
var checking = map[lexer.Kind]struct{ second, third *regexp.Regexp }{
	lexer.Python: {
		regexp.MustCompile(`^(self|cls)\.assert(True|False|IsNone|IsNotNone)_?$`),
		regexp.MustCompile(
			`^(self|cls)\.assert(Not)?(Almost)?(Equals?|Is|In|IsInstance|Greater|Less|GreaterEqual|LessEqual|\w+Equal)$`),
	},
	lexer.JavaScript: {
		regexp.MustCompile(
			`^assert$|^(assert|t)\.(ok|notOk|isTrue|isFalse|isNull|isUndefined|isOk|true|false|truthy|falsy)$`),
		regexp.MustCompile(`^(assert|t)\.((not)?([dD]eep|[sS]trict|[dD]eepStrict|[lL]oose)?[eE]qual|notStrictEqual|` +
			`notDeepStrictEqual|include|lengthOf|same|is)$`),
	},
}

// hushMessages blanks the messages of checks in Python and JavaScript.
func hushMessages(l lexer.Language, data []byte, tokens []lexer.Token) {
	for i, t := range tokens {
		if t.Kind != 'w' || i+1 == len(tokens) {
			continue
		}
		called := t.Text
		if i > 1 && tokens[i-1].Text == "." {
			called = tokens[i-2].Text + "." + t.Text
		}
		follows, takes := tokens[i+1].Text == "(", checking[l.Kind]
		switch {
		case l.Kind == lexer.Python && called == "assert":
			hushFrom(data, tokens[i+1:], t.Depth, 1, false)
		case follows && takes.second.MatchString(called):
			hushFrom(data, tokens[i+2:], t.Depth+1, 1, true)
		case follows && takes.third.MatchString(called):
			hushFrom(data, tokens[i+2:], t.Depth+1, 2, true)
		}
	}
}

// hushFrom blanks the strings behind a number of commas at a depth of brackets, up to the end of the call or, for a
// statement, to the end of its line.
func hushFrom(data []byte, tokens []lexer.Token, depth, commas int, call bool) {
	for i, t := range tokens {
		switch {
		case t.Depth < depth, !call && i > 0 && t.Depth == depth && ends(data[tokens[i-1].To:t.From]):
			return
		case t.Text == "," && t.Depth == depth:
			commas--
		case commas <= 0 && t.Kind == 's':
			hush(data[t.From:t.To])
		}
	}
}

// ends reports whether a statement of Python ends in a gap between tokens outside of brackets.
func ends(gap []byte) bool {
	line, _, more := bytes.Cut(gap, []byte("\n"))
	return more && !bytes.HasSuffix(bytes.TrimRight(line, " \t\r"), []byte("\\"))
}
