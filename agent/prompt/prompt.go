package prompt

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"deepswe/agent"
	"deepswe/tools"
)

// Pack is a system prompt and an instance prompt.
//
// System is sent verbatim, as in the reference agent, except that a line consisting of {tools} is replaced by the
// description of the tools. Instance is a template with the rules of Python's str.format for plain names:
// {problem_statement}, {working_dir}, {network} (deepswe's own), and the reference's {gt_patch}, {test_patch_hint},
// {candidate_patch} and {candidate_patch_correctness}, which are always empty because an agent must not know them;
// {{ and }} stand for braces.
type Pack struct {
	Name     string
	System   string
	Instance string
	// Observations is the tag around each observation that is sent as a user message: tool_response or empty.
	Observations string
	// Notes lists settings in the file that are ignored, and where to make them instead.
	Notes []string
}

// Values are the values for a pack's placeholders.
type Values struct {
	// Statement is the issue. The [ISSUE] marks that datasets put around it are removed.
	Statement string
	// Dir is the repository's absolute path in the sandbox.
	Dir string
	// Network reports whether commands can reach the network.
	Network bool
	// Folder is the folder of the repository in which the user works, relative to Dir; empty for the root. Rules
	// are the project's own rules; see [ReadRules].
	Folder string
	Rules  string
	// Tools are described where the pack contains {tools}: in the XML format, the model knows them only from the
	// prompt.
	Tools []tools.Spec
}

// Messages renders the pack as the system message, unless it is empty, and the first user message.
func (p Pack) Messages(v Values) ([]agent.Message, error) {
	instance, err := format(p.Instance, v.fields())
	if err != nil {
		return nil, fmt.Errorf("prompt pack %s: instance_prompt: %w", p.Name, err)
	}
	var messages []agent.Message
	if system := p.system(v.Tools); system != "" {
		messages = append(messages, agent.Message{Role: agent.RoleSystem, Content: system})
	}
	instance += folderSection(v.Dir, v.Folder) + rulesSection(v.Rules)
	return append(messages, agent.Message{Role: agent.RoleUser, Content: instance}), nil
}

// Opening returns a function that writes the first messages of a conversation, for [agent.Settings]. It uses own
// for every format or, if own is nil, the built-in pack for the format. network says whether commands can reach the
// network.
func Opening(own *Pack, network bool) func(agent.Opening) ([]agent.Message, error) {
	return func(o agent.Opening) ([]agent.Message, error) {
		pack := own
		if pack == nil {
			built, err := Builtin(o.Format.Name())
			if err != nil {
				return nil, fmt.Errorf("open the conversation: %w", err)
			}
			pack = &built
		}
		return pack.Messages(Values{
			Statement: o.Issue.Statement, Dir: o.Dir, Network: network, Tools: o.Tools,
			Folder: o.Issue.Folder, Rules: o.Issue.Rules,
		})
	}
}

var toolsLine = regexp.MustCompile(`(?m)^\{tools\}$`)

func (p Pack) system(specs []tools.Spec) string {
	if !toolsLine.MatchString(p.System) {
		return p.System
	}
	return toolsLine.ReplaceAllLiteralString(p.System, describe(specs))
}

func (v Values) fields() map[string]string {
	network := "There is no network access: nothing can be downloaded or installed."
	if v.Network {
		network = "Network access is available."
	}
	return map[string]string{
		"problem_statement": statement(v.Statement),
		"working_dir":       v.Dir,
		"network":           network,
		"gt_patch":          "", "test_patch_hint": "", "candidate_patch": "", "candidate_patch_correctness": "",
	}
}

// Marks around an issue, in the reference's datasets and in the built-in packs.
const (
	issueBegin = "[ISSUE]"
	issueEnd   = "[/ISSUE]"
)

// statement returns the issue without marks around it. A mark inside it is neutralised, so that an issue's author
// cannot close the issue and continue as if writing the prompt.
func statement(text string) string {
	if _, inner, ok := strings.Cut(text, issueBegin); ok {
		if end := strings.LastIndex(inner, issueEnd); end >= 0 {
			text = inner[:end]
		}
	}
	text = strings.NewReplacer(issueBegin, "(ISSUE)", issueEnd, "(/ISSUE)").Replace(text)
	return strings.TrimSpace(text)
}

// format fills in a template by the rules of Python's str.format for plain names: {name} is replaced, {{ and }} are
// braces, and a single brace is an error. The values themselves are not expanded. Attributes, indexes, conversions
// and format specifications are errors, because no prompt needs them.
func format(template string, fields map[string]string) (string, error) {
	var out strings.Builder
	for at := 0; at < len(template); {
		next := strings.IndexAny(template[at:], "{}")
		if next < 0 {
			out.WriteString(template[at:])
			break
		}
		out.WriteString(template[at : at+next])
		at += next
		brace := template[at]
		if at+1 < len(template) && template[at+1] == brace {
			out.WriteByte(brace)
			at += 2
			continue
		}
		if brace == '}' {
			return "", fmt.Errorf("%s: single }; write }} for a literal brace", position(template, at))
		}
		end := strings.IndexAny(template[at+1:], "{}")
		if end < 0 || template[at+1+end] == '{' {
			return "", fmt.Errorf("%s: { without }; write {{ for a literal brace", position(template, at))
		}
		name := template[at+1 : at+1+end]
		value, ok := fields[name]
		if !ok {
			return "", fmt.Errorf("%s: unknown placeholder {%s}; the placeholders are %s, and a literal brace is written {{",
				position(template, at), name, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		out.WriteString(value)
		at += end + 2
	}
	return out.String(), nil
}

// position returns the line and column of a byte of the template, both from 1.
func position(template string, at int) string {
	before := template[:at]
	line := strings.Count(before, "\n") + 1
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Sprintf("line %d, column %d", line, column)
}
