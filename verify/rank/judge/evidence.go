package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepswe/agent/trajectory"
)

// Evidence is everything that a judge sees of a candidate.
type Evidence struct {
	Statement string `json:"statement"`
	// Steps is the trajectory; empty for a patch that came without one.
	Steps []Step `json:"steps"`
	Patch string `json:"patch"`
}

// Step is one turn of the agent.
type Step struct {
	Thought     string `json:"thought"`
	Action      string `json:"action"`
	Observation string `json:"observation"`
}

// callTag opens a call in the text of a reply.
const callTag = "<function="

// Steps returns the turns of a recording. Native calls are converted to XML, the format that judges were trained on.
func Steps(r *trajectory.Recording) []Step {
	steps := make([]Step, 0, len(r.Turns))
	for _, t := range r.Turns {
		var s Step
		thought := t.Reply.Message.Content
		if at := strings.LastIndex(thought, "</think>"); true {
			from := max(0, at)
			if call := strings.Index(thought[from:], callTag); call >= 0 {
				thought, s.Action = thought[:from+call], strings.TrimSpace(thought[from+call:])
			}
		}
		if s.Action == "" {
			s.Action = inXML(t.Reply.Calls)
		}
		s.Thought = strings.TrimSpace(t.Reply.Message.Reasoning + "\n\n" + strings.TrimSpace(thought))
		var observed []string
		for _, o := range t.Observations {
			observed = append(observed, o.Message.Content)
		}
		s.Observation = strings.Join(observed, "\n\n")
		steps = append(steps, s)
	}
	return steps
}

// inXML writes calls as text.
func inXML(calls []trajectory.Call) string {
	var b strings.Builder
	for i, c := range calls {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "<function=%s>\n", c.Name)
		for _, key := range slices.Sorted(maps.Keys(c.Args)) {
			fmt.Fprintf(&b, "  <parameter=%s>%s</parameter>\n", key, c.Args[key])
		}
		b.WriteString("</function>")
	}
	return b.String()
}

// marks separate the parts of the conversation. They are escaped in texts from elsewhere, so that no text can close its
// part and pretend to be another.
var marks = []string{
	"[SYSTEM]", "[/SYSTEM]", "[USER]", "[/USER]", "[STEP]", "[/STEP]", "[ASSISTANT]", "[/ASSISTANT]",
	"[PATCH]", "[/PATCH]",
	"=== INTERACTION LOG ===", "=== END INTERACTION ===", "=== FINAL PATCH ===", "=== END FINAL PATCH ===",
}

// defused returns the text with every mark in parentheses in place of brackets, or dashes in place of equals signs.
func defused(text string) string {
	if !strings.Contains(text, "[") && !strings.Contains(text, "===") {
		return text
	}
	pairs := make([]string, 0, 2*len(marks))
	for _, m := range marks {
		harmless := strings.NewReplacer("[", "(", "]", ")", "===", "---").Replace(m)
		pairs = append(pairs, m, harmless)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
