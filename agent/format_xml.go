package agent

import (
	"cmp"
	"fmt"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// XML is the format of DeepSWE and Qwen3: one call per reply, written in the text as
//
//	<function=NAME>
//	<parameter=KEY>VALUE</parameter>
//	</function>
//
// A value keeps every byte, except in block form, which the prompt shows for values of several lines: if a value
// starts with a line break, its first and last line breaks, and the closing tag's indentation, belong to the tags.
// Other renderers and parsers of this notation do the same (Qwen3-Coder's template, vLLM, Tunix). The reference
// agent strips all whitespace at both ends, and thus the indentation of old_str. The content of a whole file keeps
// its last line break even in block form, because a file ends with one.
type XML struct{}

// Name returns "xml".
func (XML) Name() string { return trajectory.FormatXML }

// Offer returns nothing, because the prompt describes the tools.
func (XML) Offer([]tools.Spec) []tools.Spec { return nil }

// Parse reads the first call in the reply's text. If the server has extracted calls from the text, although no
// tools were offered, they are read as native calls.
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
		// The server may have mistaken the whole reply for reasoning.
		if reasoned := scanText(r.Message.Reasoning); reasoned.call != nil || reasoned.wrong != "" {
			return problem(ProblemInThought, adviceInThought)
		}
		return problem(ProblemEmpty, adviceEmpty)
	}
	return problem(ProblemNoCall, adviceNoCall)
}

// scanned is what was found in a reply's text outside its <think> blocks.
type scanned struct {
	call     *tools.Call // the first well-formed call
	more     int         // number of calls after it
	wrong    string      // what is wrong with the first malformed call
	broken   bool        // the malformed call was meant as a call, so nothing after it counts
	thought  bool        // a call is inside a thought
	unclosed bool        // a thought is not closed
	reopened bool        // a </think> without an opening tag was seen
}

// scanText scans the text from left to right. It never interprets a call's values as thoughts, because a model may
// edit a file that contains <think>.
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
			// The chat template opened the thought in the prompt, so everything before was a thought.
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

// readFunction reads the call that starts at tags[i], and returns the index of the tag after it.
func (s *scanned) readFunction(text string, tags []tag, i int) int {
	call, next, wrong := readCall(text, tags, i)
	switch {
	case wrong != "":
		s.wrong = cmp.Or(s.wrong, wrong)
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

// firstCallID is the ID of an XML reply's only call.
const firstCallID = "call_1"

// isAttempt distinguishes a malformed call from a sentence that only mentions the tag: the tag of a call is
// directly followed by a parameter or the end of the call. After a mere mention, a real call may follow.
func isAttempt(text string, tags []tag, i int) bool {
	if i+1 == len(tags) || !blank(text[tags[i].end:tags[i+1].start]) {
		return false
	}
	return tags[i+1].kind == openParameter || tags[i+1].kind == closeFunction
}

// mostParameters limits the parameters of a call. It is far above what any tool has, and keeps parsing fast,
// because each parameter requires a pass over the reply.
const mostParameters = 64

// readCall reads from the <function=…> at tags[i] to the end of the call. It returns the index of the tag after the
// call, or what is wrong with the call.
func readCall(text string, tags []tag, i int) (call tools.Call, next int, wrong string) {
	if tags[i].name == "" {
		return call, 0, "the function has no name"
	}
	call = tools.Call{Name: tags[i].name, Args: map[string]string{}}
	at, j := tags[i].end, i+1
	blockEnd := map[string]string{} // the line break that unframe removed from the end of each value
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

// valueEnd returns the index of the </parameter> that ends the value that starts at tags[j], or -1.
//
// A value may contain the same tags as those around it, for example in an edit to a parser or a prompt. So its end
// is the first </parameter> after which the call can continue (with the next parameter, or with a </function> that
// is not itself inside a value) and at which as many parameters were closed as the value opened. If the value opens
// more than it closes, the first one after which the call can continue is its end, unless the surplus looks like
// another parameter of the call, whose predecessor was not closed.
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
	return last // the call is malformed after it; readCall explains how
}

// canEnd reports whether a call can continue after the </parameter> at tags[k].
func canEnd(text string, tags []tag, k int) bool {
	if k+1 == len(tags) || !blank(text[tags[k].end:tags[k+1].start]) {
		return false
	}
	switch tags[k+1].kind {
	case openParameter, openFunction: // after openFunction, readCall reports a missing </function>
		return true
	case closeFunction:
		// After the real end of a call, no value can end.
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

// indentation returns the whitespace between the start of the line and at. ok is false if there is anything else.
func indentation(text string, at int) (indent string, ok bool) {
	before := strings.TrimRight(text[:at], " \t")
	if before != "" && !strings.HasSuffix(before, "\n") {
		return "", false
	}
	return text[len(before):at], true
}

// wholeFile is the parameter of file_editor whose value is the content of a whole file.
const wholeFile = "file_text"

// insertedText is the parameter of file_editor whose value is inserted as lines.
const insertedText = "new_str"

// keepBlankLine restores the line break that unframe removed from the end of an insertion in block form, if another
// one precedes it. Otherwise a blank line at the end would be lost, because insert takes the last line break for
// the end of the last line.
func keepBlankLine(args map[string]string, end string) {
	if strings.TrimSpace(args["command"]) == "insert" && strings.HasSuffix(args[insertedText], "\n") {
		args[insertedText] += end
	}
}

// unframe converts a value in block form to its content; see [XML]. indent is that of the opening tag. It also
// returns the line break that it removed at the end.
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

// tagKind is one of the six tags that have a meaning in a reply.
type tagKind byte

const (
	openFunction tagKind = iota
	closeFunction
	openParameter
	closeParameter
	openThink
	closeThink
)

var tagKinds = map[string]tagKind{
	"function": openFunction, "/function": closeFunction, "parameter": openParameter, "/parameter": closeParameter,
	"think": openThink, "/think": closeThink,
}

// tag is a tag and its place: text[start:end].
type tag struct {
	kind       tagKind
	start, end int
	name       string // name of the function or parameter; may be empty
}

// longestTag limits how far the ">" of a tag is searched, so that parsing takes linear time for any text.
const longestTag = 200

// findTags returns every tag in the text, in order. It allows spaces around "=" and before ">", and quotes around a
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

func readTag(text string, at int) (tag, bool) {
	rest := text[at+1 : min(len(text), at+longestTag)]
	inner, _, closed := strings.Cut(rest, ">")
	if !closed || strings.ContainsAny(inner, "<\n") {
		return tag{}, false
	}
	word, name, named := strings.Cut(inner, "=")
	kind, known := tagKinds[strings.TrimSpace(word)]
	if !known || named != (kind == openFunction || kind == openParameter) {
		return tag{}, false
	}
	return tag{kind: kind, start: at, end: at + len(inner) + 2, name: tagName(name)}, true
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
