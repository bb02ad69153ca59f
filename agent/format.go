package agent

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// Format is how a model writes its calls. [XML] and [Native] are the two there are. A Format holds no state and is safe
// for concurrent use.
type Format interface {
	// Name is the word of --format and of a trajectory's header: xml or tools.
	Name() string
	// Offer returns the tools that a request carries natively.
	Offer(specs []tools.Spec) []tools.Spec
	// Parse reads a reply. It never fails and never panics, whatever the reply holds.
	Parse(r Reply) Reading
}

// Reading is a parsed reply: the calls to run, or what to tell the model about a reply without any.
type Reading struct {
	// Actions are in the order of the reply. A reply with native calls has one Action for each of them, because servers
	// refuse a conversation in which a call has no answer.
	Actions []Action
	// Problem and Advice are set where no action can be run. Advice is for the model.
	Problem Problem
	Advice  string
	// Note is shown to the model after the results.
	Note string
}

// Action is one call of a reply, or the reason why it is not run.
type Action struct {
	// Call has an ID that is unique in its reply and never empty, even where the server's was.
	Call tools.Call
	// Problem and Refusal are empty for a call that runs. Refusal is shown to the model in place of a result.
	Problem Problem
	Refusal string
}

func (a Action) runs() bool { return a.Problem == "" }

// Problem is a word for what was wrong with a reply, for records and statistics.
type Problem string

// The problems of a reply. Each counts as a format error unless another call of the same reply was run; only those of
// replies without a single well-formed call bring the rollout closer to its end.
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

// wellFormed reports whether an action is a call that could be read, whether or not it was run.
func (a Action) wellFormed() bool {
	switch a.Problem {
	case "", ProblemUnknown, ProblemTooMany, ProblemTooLate, ProblemTooEarly:
		return true
	}
	return false
}

// problem returns the reading of a reply from which nothing can be run.
func problem(p Problem, advice string) Reading { return Reading{Problem: p, Advice: advice} }

// FormatNamed returns the format with that name, and false for an unknown name.
func FormatNamed(name string) (Format, bool) {
	switch name {
	case trajectory.FormatXML:
		return XML{}, true
	case trajectory.FormatTools:
		return Native{}, true
	}
	return nil, false
}

// xmlModels matches models that learned to call tools through XML in their text. Everything else gets native calls, and
// falls back to XML where the server accepts none:
//
//	DeepSWE-Preview, R2E-Gym agents       XML    trained in this very format
//	Qwen3-32B and its dense and MoE kin   XML    the base of DeepSWE: RL starts from it in this format
//	OpenHands-LM, SWE-Gym                 XML    trained on the same notation
//	Qwen3-Coder, Qwen3-Next, Qwen3.5 on   tools  their template has an XML of its own, which the server parses
//	gpt, o3, claude, gemini, grok, …      tools  hosted: trained in the endpoint's own format
//	any other name                        tools  falls back to XML after the server's first refusal
var xmlModels = regexp.MustCompile(`(?i)deepswe|r2e-?gym|openhands-lm|swe-?gym|qwen-?3(:latest|` +
	`[-_:/]?\d+(\.\d+)?b([^a-z]|$)|$)`)

// FormatFor returns the format that a model is most likely to know, judged by its name.
func FormatFor(model string) Format {
	if xmlModels.MatchString(model) {
		return XML{}
	}
	return Native{}
}

// read parses a reply, takes the names that other agents give to the tools for ours, and refuses calls of tools that do
// not exist.
func read(f Format, specs []tools.Spec, reply Reply) Reading {
	reading := f.Parse(reply)
	for i := range reading.Actions {
		a := &reading.Actions[i]
		a.Call = tools.Resolve(specs, a.Call)
		if a.runs() && !slices.ContainsFunc(specs, func(s tools.Spec) bool { return s.Name == a.Call.Name }) {
			a.Problem, a.Refusal = ProblemUnknown, fmt.Sprintf(adviceUnknown, excerpt(a.Call.Name), tools.Names(specs))
		}
	}
	return reading
}

// answer returns the messages that answer a reply, given one body for each action or one for a problem. Native calls
// are answered one by one and in order; everything else in one user message, within the tag where there is one.
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
