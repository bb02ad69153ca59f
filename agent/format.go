package agent

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// Format is how a model writes its calls: [XML] or [Native]. A Format has no state and is safe for concurrent use.
type Format interface {
	// Name returns the value of --format and of a trajectory's header: xml or tools.
	Name() string
	// Offer returns the tools to be sent natively with a request.
	Offer(specs []tools.Spec) []tools.Spec
	// Parse parses a reply. It never fails or panics, whatever the reply contains.
	Parse(r Reply) Reading
}

// Reading is a parsed reply: the calls to run or, if there are none, what to tell the model.
type Reading struct {
	// Actions are in the order of the reply. There is one for every native call, because servers reject a
	// conversation in which a call has no answer.
	Actions []Action
	// Problem and Advice are set if there are no actions. Advice is sent to the model.
	Problem Problem
	Advice  string
	// Note is shown to the model after the results.
	Note string
}

// Action is a call of a reply, with the reason if it is not run.
type Action struct {
	// Call has an ID that is unique in its reply and never empty, even if the server's was.
	Call tools.Call
	// Problem and Refusal are empty for a call that is run. Refusal is shown to the model instead of a result.
	Problem Problem
	Refusal string
}

func (a Action) runs() bool { return a.Problem == "" }

// Problem says what was wrong with a reply, for records and statistics.
type Problem string

// The problems of a reply. Each counts as a format error unless another call of the same reply was run, but only
// replies without any well-formed call count towards Limits.FormatErrors.
const (
	ProblemEmpty     Problem = "empty"
	ProblemNoCall    Problem = "no_call"
	ProblemInThought Problem = "call_in_thought"
	ProblemUnclosed  Problem = "unclosed_thought"
	ProblemTruncated Problem = "truncated"
	ProblemMalformed Problem = "malformed_call"
	ProblemArguments Problem = "bad_arguments"
	ProblemUnknown   Problem = "unknown_tool"
	ProblemTooMany   Problem = "too_many_calls"
	ProblemTooLate   Problem = "after_finish"
	ProblemTooEarly  Problem = "finish_after_failure"
)

// wellFormed reports whether the call could be parsed, whether or not it was run.
func (a Action) wellFormed() bool {
	switch a.Problem {
	case "", ProblemUnknown, ProblemTooMany, ProblemTooLate, ProblemTooEarly:
		return true
	}
	return false
}

// problem returns the reading of a reply with nothing that can be run.
func problem(p Problem, advice string) Reading { return Reading{Problem: p, Advice: advice} }

// FormatNamed returns the format with the given name; ok is false for an unknown name.
func FormatNamed(name string) (Format, bool) {
	switch name {
	case trajectory.FormatXML:
		return XML{}, true
	case trajectory.FormatTools:
		return Native{}, true
	}
	return nil, false
}

// xmlModels matches models that learned to call tools as XML in their text. All others get native calls, with a
// fallback to XML if the server does not support those:
//
//	DeepSWE-Preview, R2E-Gym agents       XML    trained in exactly this format
//	Qwen3-32B and its dense and MoE kin   XML    the base of DeepSWE: RL starts from it in this format
//	OpenHands-LM, SWE-Gym                 XML    trained on the same notation
//	Qwen3-Coder, Qwen3-Next, Qwen3.5 on   tools  their template has another XML, which the server parses
//	gpt, o3, claude, gemini, grok, …      tools  hosted: trained in the endpoint's own format
//	any other name                        tools  falls back to XML after the server's first refusal
var xmlModels = regexp.MustCompile(`(?i)deepswe|r2e-?gym|openhands-lm|swe-?gym|qwen-?3(:latest|` +
	`[-_:/]?\d+(\.\d+)?b([^a-z]|$)|$)`)

// FormatFor returns the format that a model is most likely to know, judging by its name.
func FormatFor(model string) Format {
	if xmlModels.MatchString(model) {
		return XML{}
	}
	return Native{}
}

// read parses a reply, replaces other agents' names for our tools, and refuses calls of tools that do not exist.
func read(f Format, specs []tools.Spec, reply Reply) Reading {
	reading := f.Parse(reply)
	for i := range reading.Actions {
		a := &reading.Actions[i]
		a.Call = tools.Resolve(specs, a.Call)
		if a.runs() && !slices.ContainsFunc(specs, func(s tools.Spec) bool { return s.Name == a.Call.Name }) {
			a.Problem = ProblemUnknown
			a.Refusal = fmt.Sprintf(adviceUnknown, excerpt(a.Call.Name), tools.Names(specs)) + tools.Instead(a.Call.Name)
		}
	}
	return reading
}

// answer returns the messages that answer a reply, given a body for each action, or one body for a problem. Native
// calls are answered one by one, in order; otherwise there is one user message, wrapped in the tag unless that is
// empty.
func answer(reply Message, bodies []string, tag string) []Message {
	if len(reply.ToolCalls) == 0 || len(bodies) != len(reply.ToolCalls) {
		content := strings.Join(bodies, "\n\n")
		if tag != "" {
			content = "<" + tag + ">\n" + content + "\n</" + tag + ">"
		}
		return []Message{{Role: RoleUser, Content: content}}
	}
	messages := make([]Message, len(bodies))
	for i, body := range bodies {
		call := reply.ToolCalls[i]
		messages[i] = Message{Role: RoleTool, Content: body, ToolCallID: call.ID, Name: call.Name}
	}
	return messages
}
