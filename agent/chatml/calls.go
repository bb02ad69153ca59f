package chatml

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"deepswe/agent/trajectory"
	"deepswe/env/disk"
	"deepswe/tools"
)

// reader reads calls. The arguments of a malformed call are its text, which is not a JSON object, so that the model
// can be told what is wrong.
type reader struct {
	*notation
	rest  string
	specs []tools.Spec
	turn  int
	calls []trajectory.ToolCall
}

// readCalls returns the text before the calls, and the calls. It returns no calls if one of them has no name, or if
// there is anything else between them.
func (n *notation) readCalls(text string, turn int, specs []tools.Spec) (string, []trajectory.ToolCall) {
	r := &reader{notation: n, specs: specs, turn: turn}
	if n.opening() == "" {
		r.rest = trim(text)
		r.skip(n.tag)
		if strings.HasPrefix(trim(r.rest), "{") && r.one() && trim(r.rest) == "" {
			return "", r.calls
		}
		return text, nil
	}
	before, rest, called := strings.Cut(text, n.opening())
	for called {
		r.rest = rest
		for known := n.section[0] == "" || r.skip(n.call[0]); known; known = r.skip(n.call[0]) {
			if !r.one() {
				return text, nil
			}
		}
		if len(r.calls) == 0 || n.section[0] != "" && !r.skip(n.section[1]) && trim(r.rest) != "" {
			return text, nil
		}
		_, rest, called = strings.Cut(r.rest, n.opening())
	}
	if len(r.calls) == 0 {
		return text, nil
	}
	return strings.TrimRight(before, "\n"), r.calls
}

func trim(s string) string { return strings.TrimLeftFunc(s, unicode.IsSpace) }

// skip skips a mark and the space in front of it, and reports whether the mark was there.
func (r *reader) skip(mark string) bool {
	rest, ok := strings.CutPrefix(trim(r.rest), mark)
	if ok {
		r.rest = rest
	}
	return ok
}

// one reads a call whose opening mark was read. It returns false if the call has no valid name.
func (r *reader) one() bool {
	if r.object != "" {
		return r.objects(r.value())
	}
	name := r.name()
	_, id, _ := strings.Cut(name, r.id)
	if r.id != "" {
		name, _, _ = strings.Cut(name, r.id)
	}
	if r.numbered {
		id = name
		name = strings.TrimPrefix(name, "functions.")
		if at := strings.LastIndexByte(name, ':'); at >= 0 {
			name = name[:at]
		}
	}
	arguments, ok := "", r.parameter[0] != ""
	if ok {
		arguments, ok = r.members(plain(name))
	}
	if !ok {
		arguments = r.value()
	}
	return r.add(id, name, arguments)
}

// name reads a name and the mark behind it.
func (r *reader) name() string {
	at := len(r.rest)
	for _, mark := range []string{r.named, r.parameter[0], r.call[1]} {
		if i := strings.Index(r.rest, mark); mark != "" && i >= 0 {
			at = min(at, i)
		}
	}
	name := r.rest[:at]
	r.rest = strings.TrimPrefix(r.rest[at:], r.named)
	return strings.TrimSpace(name)
}

// value reads the rest of a call and its end mark, which may also occur in a JSON string.
func (r *reader) value() string {
	d := json.NewDecoder(strings.NewReader(r.rest))
	var value json.RawMessage
	if d.Decode(&value) == nil {
		end := trim(r.rest[d.InputOffset():])
		if strings.HasPrefix(end, cmp.Or(r.call[1], r.call[0])) || end == "" {
			r.rest = strings.TrimPrefix(end, r.call[1])
			return string(value)
		}
	}
	body, rest, ended := r.rest, "", false
	if r.call[1] != "" {
		body, rest, ended = strings.Cut(r.rest, r.call[1])
	} else if r.call[0] != "" {
		body, rest, ended = strings.Cut(r.rest, r.call[0])
		rest = r.call[0] + rest
	}
	if r.rest = ""; ended {
		r.rest = rest
	}
	return strings.TrimSpace(body)
}

// members reads named arguments and the end of the call. It returns a JSON object, or false if they are malformed.
func (r *reader) members(tool string) (string, bool) {
	start, seen := r.rest, map[string]bool{}
	out := &bytes.Buffer{}
	for !r.skip(r.call[1]) {
		key, value, ok := r.member()
		if !ok || seen[key] {
			r.rest = start
			return "", false
		}
		if len(seen) > 0 {
			out.WriteString(", ")
		}
		seen[key] = true
		fmt.Fprintf(out, "%s: %s", quoted(key), typed(r.specs, tool, key, value))
	}
	return "{" + out.String() + "}", true
}

// member reads one argument. Its value ends at the first end mark that another argument or the end of the call
// follows.
func (r *reader) member() (key, value string, ok bool) {
	if !r.skip(r.parameter[0]) {
		return "", "", false
	}
	if key, r.rest, ok = strings.Cut(r.rest, r.parameter[1]); !ok || r.parameter[2] != "" && !r.skip(r.parameter[2]) {
		return "", "", false
	}
	for at := 0; ; at += len(r.parameter[3]) {
		i := strings.Index(r.rest[at:], r.parameter[3])
		if i < 0 {
			return "", "", false
		}
		at += i
		after := r.rest[at+len(r.parameter[3]):]
		if strings.HasPrefix(trim(after), r.parameter[0]) || r.ended(after) {
			value, r.rest = r.rest[:at], after
			break
		}
	}
	if r.lines {
		value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
	}
	return plain(key), plain(value), true
}

// ended reports whether the text starts with the end of a call, followed by something that can come after a call.
func (r *reader) ended(text string) bool {
	text, ok := strings.CutPrefix(trim(text), r.call[1])
	text = trim(text)
	return ok && (text == "" || r.section[1] == "" || strings.HasPrefix(text, r.call[0]) ||
		strings.HasPrefix(text, r.section[1]))
}

// typed returns a value as JSON: a string, unless the tool has a parameter of this name with another type.
func typed(specs []tools.Spec, tool, key, value string) string {
	var schema struct {
		Properties map[string]struct{ Type json.RawMessage }
	}
	if i := slices.IndexFunc(specs, func(s tools.Spec) bool { return s.Name == tool }); i >= 0 {
		_ = json.Unmarshal(specs[i].Parameters, &schema) // without a schema, values are text
	}
	if kind := schema.Properties[key].Type; len(kind) == 0 || bytes.Contains(kind, []byte(`"string"`)) {
		return quoted(value)
	}
	if name, ok := map[string]string{"True": "true", "False": "false", "None": "null"}[value]; ok { // Python's
		return name
	}
	if json.Valid([]byte(value)) {
		return value
	}
	return quoted(value)
}

func quoted(s string) string {
	raw, _ := disk.MarshalJSON(s) // cannot fail for a string
	return string(raw)
}

// objects reads calls that are JSON objects.
func (r *reader) objects(body string) bool {
	var list []json.RawMessage
	if json.Unmarshal([]byte(plain(body)), &list) != nil {
		name, id, arguments, ok := readCall(plain(body), r.object)
		return ok && r.add(id, name, arguments)
	}
	for _, one := range list {
		if name, id, arguments, ok := readCall(string(one), r.object); !ok || !r.add(id, name, arguments) {
			return false
		}
	}
	return len(list) > 0
}

var (
	callName = regexp.MustCompile(`"name"\s*:\s*"([^"\\]*)"`)
	// wholeCall begins a reply that is a call. Other replies may be JSON with names, too.
	wholeCall = regexp.MustCompile(
		`^\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"([^"\\]*)"\s*,\s*"parameters"\s*:`)
	callArguments = regexp.MustCompile(`"(?:arguments|parameters)"\s*:\s*`)
)

// readCall parses {"name": …, "arguments": {…}}, as far as possible if it is invalid.
func readCall(body, key string) (name, id, arguments string, ok bool) {
	var call map[string]json.RawMessage
	if json.Unmarshal([]byte(body), &call) == nil && json.Unmarshal(call["name"], &name) == nil {
		_ = json.Unmarshal(call["id"], &id) // most have none
		if json.Unmarshal(call[key], &arguments) != nil || string(call[key]) == "null" {
			arguments = string(call[key])
		}
		_, has := call[key]
		return name, id, arguments, has || key == "arguments"
	}
	begin := callName
	if key == "parameters" {
		begin = wholeCall
	}
	found := begin.FindStringSubmatch(body)
	if found == nil {
		return "", "", "", false
	}
	if at := callArguments.FindStringIndex(body); at != nil {
		arguments = strings.TrimSpace(body[at[1]:])
	}
	return found[1], "", arguments, true
}

// add adds a call. It keeps the model's id if templates accept it: nine characters, or a numbered name. Otherwise it
// makes an id that is unique in the conversation.
func (r *reader) add(id, name, arguments string) bool {
	if id = plain(id); !r.numbered && len(id) != len(callID(0, 0)) {
		id = callID(r.turn, len(r.calls))
	}
	if name = plain(name); name == "" || strings.ContainsAny(name, "<>") {
		return false
	}
	r.calls = append(r.calls, trajectory.ToolCall{ID: id, Name: name, Arguments: plain(arguments)})
	return true
}

// callID has nine letters and digits, because some templates refuse all others.
func callID(turn, call int) string { return fmt.Sprintf("c%05d%03d", turn%100_000, call%1000) }
