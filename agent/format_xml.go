package agent

import (
	"fmt"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// XML is the format of DeepSWE and of Qwen3: one call a reply, written in the text as
//
//	<function=NAME>
//	<parameter=KEY>VALUE</parameter>
//	</function>
//
// A value keeps every byte, with one exception, the frame: a value that begins with a line break is in the block form
// that the prompt shows for values of several lines, where the first line break and the last one (with the closing
// tag's own indentation) belong to the tags. That is how the renderers and parsers of this notation read it
// (Qwen3-Coder's template, vLLM, Tunix); the reference strips all whitespace at both ends, and with it the indentation
// of old_str. The text of a whole file keeps its last line break even so: a file ends with one.
type XML struct{}

// Name returns "xml".
func (XML) Name() string { return trajectory.FormatXML }

// Offer returns nothing: the prompt describes the tools.
func (XML) Offer([]tools.Spec) []tools.Spec { return nil }

// Parse reads the first call of the reply's text. Calls that the server extracted from the text, though none were
// offered, are read as native ones: the text is gone, the meaning is not.
func (XML) Parse(r Reply) Reading {
	if len(r.Message.ToolCalls) > 0 {
		return Native{}.Parse(r)
	}
	return parseText(r)
}

func parseText(r Reply) Reading {
	text := r.Message.Content
	truncated := r.FinishReason == finishLength
	found := scanText(text)
	switch {
	case found.call != nil:
		note := ""
		if found.more > 0 {
			note = fmt.Sprintf(adviceMoreCalls, found.more)
		}
		return Reading{Actions: []Action{{Call: *found.call}}, Note: note}
	case truncated:
		return problem(ProblemTruncated, adviceTruncated)
	case found.wrong != "":
		return problem(ProblemMalformed, fmt.Sprintf(adviceMalformed, found.wrong))
	case found.unclosed:
		return problem(ProblemUnclosed, adviceUnclosed)
	case found.thought:
		return problem(ProblemInThought, adviceInThought)
	case blank(text):
		// The server may have taken the whole reply for reasoning.
		if reasoned := scanText(r.Message.Reasoning); reasoned.call != nil || reasoned.wrong != "" {
			return problem(ProblemInThought, adviceInThought)
		}
		return problem(ProblemEmpty, adviceEmpty)
	}
	return problem(ProblemNoCall, adviceNoCall)
}

// scanned is what a reply's text holds outside of its <think> blocks.
type scanned struct {
	call     *tools.Call // the first well-formed call
	more     int         // calls after it
	wrong    string      // what is wrong with the first malformed call
	broken   bool        // it was meant to be a call: nothing after it counts
	thought  bool        // a call is inside a thought
	unclosed bool        // a thought has no end
	reopened bool        // a </think> without an opening tag was seen
}

// scanText goes from left to right. A call's values are never read as thoughts, so that a model may edit a file that
// mentions <think>.
func scanText(text string) scanned {
	var s scanned
	tags := findTags(text)
	for i := 0; i < len(tags); {
		switch t := tags[i]; {
		case t.kind == openThink && !s.broken:
			end := nextTag(tags, i+1, closeThink)
			s.thought = s.thought || nextTag(tags[:end], i+1, openFunction) < end
			if end == len(tags) {
				s.unclosed = s.call == nil
				return s
			}
			i = end + 1
		case t.kind == closeThink && !s.reopened:
			// The template opened the thought in the prompt: everything before was one.
			s = scanned{reopened: true, thought: s.thought || s.call != nil || s.wrong != ""}
			i++
		case t.kind == openFunction && !s.broken:
			i = s.readFunction(text, tags, i)
		default:
			i++
		}
	}
	return s
}

// readFunction reads the call that begins at tags[i] and returns the index of the tag to go on with.
func (s *scanned) readFunction(text string, tags []tag, i int) int {
	call, next, wrong := readCall(text, tags, i)
	switch {
	case wrong != "":
		if s.wrong == "" {
			s.wrong = wrong
		}
		s.broken = isAttempt(text, tags, i)
		return i + 1
	case s.call == nil:
		call.ID = firstCallID
		s.call = &call
	default:
		s.more++
	}
	return next
}

// firstCallID names the only call of a reply in XML.
const firstCallID = "call_1"

// isAttempt distinguishes a broken call from a sentence that only mentions the tag: a call's tag is directly followed
// by a parameter or the call's end. After a mere mention a real call may still come.
func isAttempt(text string, tags []tag, i int) bool {
	if i+1 == len(tags) || !blank(text[tags[i].end:tags[i+1].start]) {
		return false
	}
	return tags[i+1].kind == openParameter || tags[i+1].kind == closeFunction
}

// mostParameters bounds the parameters of a call: no tool has a tenth of them, and each costs a walk over the reply.
const mostParameters = 64

// readCall reads from the <function=…> at tags[i] to its end. It returns the index of the tag after the call, or what
// is wrong with the call.
func readCall(text string, tags []tag, i int) (call tools.Call, next int, wrong string) {
	if tags[i].name == "" {
		return call, 0, "the function has no name"
	}
	call = tools.Call{Name: tags[i].name, Args: map[string]string{}}
	at, j := tags[i].end, i+1
	blockEnd := map[string]string{} // what the frame took off the end of a value
	for {
		if j == len(tags) {
			return call, 0, "missing </function> at the end"
		}
		t := tags[j]
		gap := text[at:t.start]
		switch {
		case t.kind == openFunction:
			return call, 0, "missing </function> before the next function call"
		case !blank(gap):
			return call, 0, fmt.Sprintf("unexpected text outside the parameters (%q)", excerpt(gap))
		case t.kind == closeFunction:
			keepBlankLine(call.Args, blockEnd[insertedText])
			return call, j + 1, ""
		case t.kind != openParameter:
			return call, 0, fmt.Sprintf("unexpected %s between the parameters", text[t.start:t.end])
		}
		end := valueEnd(text, tags, j)
		indent, _ := indentation(text, t.start)
		_, twice := call.Args[t.name]
		switch {
		case end < 0:
			return call, 0, fmt.Sprintf("parameter %q has no closing </parameter>", t.name)
		case t.name == "":
			return call, 0, "a parameter has no name"
		case twice:
			return call, 0, fmt.Sprintf("parameter %q is given twice", t.name)
		case len(call.Args) == mostParameters:
			return call, 0, "too many parameters"
		}
		call.Args[t.name], blockEnd[t.name] = unframe(text[t.end:tags[end].start], t.name, indent)
		at, j = tags[end].end, end+1
	}
}

// valueEnd returns the index of the </parameter> that ends the value begun at tags[j], or -1.
//
// A value may hold the very tags that surround it, as in an edit of a parser or a prompt. So the end is the first
// </parameter> that the call can go on from (the next parameter, or a </function> that is not itself inside a value)
// and that closes as many parameters as the value opened. Where the value opens more than it closes, the first that
// the call can go on from will do, unless the surplus looks like a parameter of the call whose predecessor was not
// closed.
func valueEnd(text string, tags []tag, j int) int {
	open, first, last := 1, -1, -1
	doubtful := false
	for k := j + 1; k < len(tags); k++ {
		switch tags[k].kind {
		case openParameter:
			open++
			_, ownLine := indentation(text, tags[k].start)
			doubtful = doubtful || first < 0 && ownLine
		case openFunction, closeFunction:
			doubtful = doubtful || first < 0
		case closeParameter:
			open--
			if !canEnd(text, tags, k) {
				if last < 0 {
					last = k
				}
				break
			}
			if open <= 0 {
				return k
			}
			if first < 0 {
				first = k
			}
		}
	}
	switch {
	case first >= 0 && !doubtful:
		return first
	case first >= 0:
		return -1
	}
	return last // the call is broken behind it, and readCall says how
}

// canEnd reports whether a call can continue after the </parameter> at tags[k].
func canEnd(text string, tags []tag, k int) bool {
	if k+1 == len(tags) || !blank(text[tags[k].end:tags[k+1].start]) {
		return false
	}
	switch tags[k+1].kind {
	case openParameter, openFunction: // behind the latter, readCall misses a </function>
		return true
	case closeFunction:
		// Behind the real end of a call no value can end.
		return k+2 == len(tags) || tags[k+2].kind != closeParameter && tags[k+2].kind != closeFunction
	}
	return false
}

func nextTag(tags []tag, from int, kind tagKind) int {
	for i := from; i < len(tags); i++ {
		if tags[i].kind == kind {
			return i
		}
	}
	return len(tags)
}

// indentation is the whitespace between the beginning of the line and at. It is not ok where there is anything else.
func indentation(text string, at int) (indent string, ok bool) {
	before := strings.TrimRight(text[:at], " \t")
	if before != "" && !strings.HasSuffix(before, "\n") {
		return "", false
	}
	return text[len(before):at], true
}

// wholeFile is the parameter of file_editor whose value is a file from its first byte to its last.
const wholeFile = "file_text"

// insertedText is the parameter of file_editor whose value is inserted as lines.
const insertedText = "new_str"

// keepBlankLine puts the line break back that ended the value of an insertion in the block form, where it stands after
// another one: insert takes a line break at the end of its text for that of the last line, so the blank line that the
// value ends with would be lost.
func keepBlankLine(args map[string]string, end string) {
	if strings.TrimSpace(args["command"]) == "insert" && strings.HasSuffix(args[insertedText], "\n") {
		args[insertedText] += end
	}
}

// unframe takes the frame of the block form off a value; see [XML]. The indent is that of the opening tag. It also
// returns the line break that the frame had at the end.
func unframe(value, key, indent string) (inner, end string) {
	lineBreak := "\n"
	if strings.HasPrefix(value, "\r\n") {
		lineBreak = "\r\n"
	}
	body, framed := strings.CutPrefix(value, lineBreak)
	if !framed {
		return value, ""
	}
	if body == indent {
		return "", ""
	}
	if strings.HasSuffix(body, "\n"+indent) {
		body = strings.TrimSuffix(body, indent)
	}
	inner, cut := strings.CutSuffix(body, lineBreak)
	if key == wholeFile && inner != "" && !strings.HasSuffix(inner, "\n") {
		return body, ""
	}
	if cut {
		end = lineBreak
	}
	return inner, end
}

// excerpt shortens a text for a message.
func excerpt(s string) string {
	const most = 80
	s = strings.TrimSpace(s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// tagKind is one of the six tags that mean something in a reply.
type tagKind byte

const (
	openFunction tagKind = iota
	closeFunction
	openParameter
	closeParameter
	openThink
	closeThink
)

// tag is a tag and its place: text[start:end].
type tag struct {
	kind       tagKind
	start, end int
	name       string // of a function or a parameter; may be empty
}

// longestTag bounds how far the ">" of a tag is searched, so that parsing stays linear for any text.
const longestTag = 200

// findTags returns every tag of the text in order. Spaces around "=" and before ">" are allowed, and quotes around a
// name.
func findTags(text string) []tag {
	var tags []tag
	for at := 0; ; {
		next := strings.IndexByte(text[at:], '<')
		if next < 0 {
			return tags
		}
		at += next
		if t, ok := readTag(text, at); ok {
			tags = append(tags, t)
			at = t.end
		} else {
			at++
		}
	}
}

// readTag reads the tag that begins at text[at].
func readTag(text string, at int) (tag, bool) {
	rest := text[at+1 : min(len(text), at+longestTag)]
	inner, _, closed := strings.Cut(rest, ">")
	if !closed || strings.ContainsAny(inner, "<\n") {
		return tag{}, false
	}
	t := tag{start: at, end: at + len(inner) + 2}
	word, name, named := strings.Cut(inner, "=")
	switch word = strings.TrimSpace(word); {
	case word == "function" && named:
		t.kind, t.name = openFunction, tagName(name)
	case word == "parameter" && named:
		t.kind, t.name = openParameter, tagName(name)
	case word == "/function" && !named:
		t.kind = closeFunction
	case word == "/parameter" && !named:
		t.kind = closeParameter
	case word == "think" && !named:
		t.kind = openThink
	case word == "/think" && !named:
		t.kind = closeThink
	default:
		return tag{}, false
	}
	return t, true
}

func tagName(s string) string {
	s = strings.TrimSpace(s)
	for _, quote := range []string{`"`, "'"} {
		if len(s) > 1 && strings.HasPrefix(s, quote) && strings.HasSuffix(s, quote) {
			return s[1 : len(s)-1]
		}
	}
	return s
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
