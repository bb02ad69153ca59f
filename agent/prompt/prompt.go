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
// System is sent word for word, as the reference sends it, except for one thing: a line that holds nothing but {tools}
// becomes the description of the tools. Instance is a template with the rules of Python's str.format for plain names:
// {problem_statement}, {working_dir}, {network} (ours), and the reference's {gt_patch}, {test_patch_hint},
// {candidate_patch} and {candidate_patch_correctness}, which are always empty here because an agent must not know
// them; {{ and }} stand for braces.
type Pack struct {
	Name     string
	System   string
	Instance string
	// Observations is a tag to put around every observation that is sent as a user's message: tool_response, or empty.
	Observations string
	// Notes name the settings of the file that are ignored here, and where they are set instead.
	Notes []string
}

// Values fill a pack.
type Values struct {
	// Statement is the issue. The [ISSUE] marks that datasets put around it are taken off.
	Statement string
	// Dir is the repository's absolute path in the sandbox.
	Dir string
	// Network reports whether commands can reach the network.
	Network bool
	// Folder is where in the repository the user works, relative to Dir; empty for the root. Rules are the project's own,
	// see [ReadRules].
	Folder string
	Rules  string
	// Tools are described where the pack asks for it: in the XML format, in which the prompt is all that a model knows.
	Tools []tools.Spec
}

// Messages renders the pack: the system's message, which is left out when it is empty, and the user's first.
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

// Opening returns what writes the first messages of a conversation, for [agent.Settings]: with the user's own pack for
// either format, or where that is nil with the one that is made for the format. network reports whether commands can
// reach the network.
func Opening(own *Pack, network bool) func(agent.Format, agent.Issue, string) ([]agent.Message, error) {
	specs := tools.New(tools.Options{}).Specs()
	return func(f agent.Format, issue agent.Issue, dir string) ([]agent.Message, error) {
		pack := own
		if pack == nil {
			built, err := Builtin(f.Name())
			if err != nil {
				return nil, fmt.Errorf("open the conversation: %w", err)
			}
			pack = &built
		}
		return pack.Messages(Values{
			Statement: issue.Statement, Dir: dir, Network: network, Tools: specs, Folder: issue.Folder, Rules: issue.Rules,
		})
	}
}

var toolsLine = regexp.MustCompile(`(?m)^\{tools\}$`)

func (p Pack) system(specs []tools.Spec) string {
	if !toolsLine.MatchString(p.System) {
		return p.System
	}
	return toolsLine.ReplaceAllLiteralString(p.System, Describe(specs))
}

// fields are the placeholders and their values.
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

// The marks that surround an issue in the reference's datasets and in the packs shipped here.
const (
	issueBegin = "[ISSUE]"
	issueEnd   = "[/ISSUE]"
)

// statement is the issue without marks around it. A mark inside it is neutralized, so that the author of an issue
// cannot close it and continue as if it were the prompt.
func statement(text string) string {
	if _, inner, ok := strings.Cut(text, issueBegin); ok {
		if end := strings.LastIndex(inner, issueEnd); end >= 0 {
			text = inner[:end]
		}
	}
	text = strings.NewReplacer(issueBegin, "(ISSUE)", issueEnd, "(/ISSUE)").Replace(text)
	return strings.TrimSpace(text)
}

// format fills a template as Python's str.format does for plain names: {name} is replaced, {{ and }} are braces, and a
// brace alone is an error. What was filled in is not looked at again. Attributes, indexes, conversions and format
// specifications are refused: no prompt needs them.
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

// position is the line and column of a byte of the template, both counted from 1.
func position(template string, at int) string {
	before := template[:at]
	line := strings.Count(before, "\n") + 1
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Sprintf("line %d, column %d", line, column)
}
