package agentcmd

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/agent"
	"deepswe/agent/acp"
	"deepswe/agent/attempt"
	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// shownOutput is how many bytes of a command's output an editor gets.
const shownOutput = 64 << 10

// acpWatcher shows a rollout to an editor. Its events come one after the other.
type acpWatcher struct {
	turn    *acp.Turn
	sandbox string // the ID of the call that stands for the preparation of the sandbox
	source  string // the repository on the host; dir is its path in the sandbox
	dir     string
	context int
	cost    func(agent.Usage) float64 // by the configured price; nil if there is none
	used    agent.Usage               // by all replies of the session
	calls   int                       // of the current reply
	now     string                    // the call that is running
	open    map[string]bool           // calls that have not ended
}

// acpPlan are the parts of a turn.
var acpPlan = []string{"Prepare the sandbox", "Work on it", "Verify the patch", "Offer the changes"}

// plan reports the index of the part that is in progress; len(acpPlan) means that all are completed.
func (w *acpWatcher) plan(part int) { w.turn.Update(acp.Plan(acpPlan, part)) }

func (w *acpWatcher) show(happened any) {
	switch h := happened.(type) {
	case started:
		w.source, w.context, w.cost = h.Repo, h.Context, h.cost
		for _, o := range h.NotCopied {
			w.turn.Update(acp.Thought("not copied: " + o.Path + ": " + o.Reason + "\n"))
		}
	case remark:
		w.turn.Update(acp.Thought(string(h) + "\n"))
	case attempt.Phase:
		w.plan(slices.Index([]attempt.Phase{attempt.PhaseSandbox, attempt.PhaseAgent, attempt.PhasePatch}, h))
		if h == attempt.PhaseSandbox {
			w.beginCall(acp.ToolCall{ID: w.sandbox, Title: acpPlan[0], Kind: "other"})
		}
	case ready:
		w.dir = string(h)
		w.done(w.sandbox, "completed", "")
	case raced:
		if h.Ended {
			w.turn.Update(acp.Thought(h.Text + "\n"))
		}
	case proposal:
		var text strings.Builder
		showDraft(&text, h.Draft)
		w.turn.Update(acp.Thought(text.String()))
	case agent.Event:
		if h.Kind == agent.EventReply && h.Usage != nil {
			w.used.Add(*h.Usage)
		}
		if !h.Replayed {
			w.event(h)
		}
	}
}

func (w *acpWatcher) event(e agent.Event) {
	if e.Call != nil && e.Call.Name == "finish" {
		return // its answer is the last message
	}
	switch e.Kind {
	case agent.EventReply:
		w.calls = 0
		if text := spokenText(e.Text); text != "" {
			w.turn.Update(acp.Thought(text + "\n"))
		}
		if w.context > 0 && e.Usage != nil {
			u := acp.Usage{Update: "usage_update", Used: e.Usage.Prompt + e.Usage.Completion, Size: w.context}
			if w.cost != nil { // in whatever currency the configuration has its prices
				u.Cost = &acp.Cost{Amount: w.cost(w.used), Currency: "credits"}
			}
			w.turn.Update(u)
		}
	case agent.EventCall:
		w.calls++
		w.now = fmt.Sprintf("step-%d-%d", e.Step, w.calls)
		w.beginCall(w.toolCall(w.now, e.Call))
	case agent.EventResult:
		status := "completed"
		if e.Result.Failed {
			status = "failed"
		}
		output := e.Result.Output
		if w.isEdit(e.Call) && !e.Result.Failed {
			output = "" // the diff says more, and an update would replace it
		}
		w.done(w.now, status, output)
	case agent.EventNotice, agent.EventProblem:
		w.turn.Update(acp.Thought(e.Text + "\n"))
	default:
	}
}

// finish does nothing: conclude reports the result.
func (w *acpWatcher) finish(outcome) error { return nil }

func (w *acpWatcher) beginCall(c acp.ToolCall) {
	c.Update, c.Status = "tool_call", "in_progress"
	w.open[c.ID] = true
	w.turn.Update(c)
}

func (w *acpWatcher) done(id, status, output string) {
	delete(w.open, id)
	c := acp.ToolCall{Update: "tool_call_update", ID: id, Status: status}
	if output != "" {
		c.Content = []acp.ToolContent{acp.Output(clipped(output))}
	}
	w.turn.Update(c)
}

// end closes the calls that have not ended, as a cancelled turn leaves them.
func (w *acpWatcher) end() {
	for id := range w.open {
		w.done(id, "failed", "")
	}
}

// conclude sends the result to the editor.
func (w *acpWatcher) conclude(report outcome) {
	text := strings.TrimSpace(report.Answer)
	if report.Detail != "" {
		text += "\n\n" + report.Detail
	}
	if report.PullRequest != nil {
		text += "\n\n" + report.PullRequest.URL
	}
	if text = strings.TrimSpace(text); text != "" {
		w.turn.Update(acp.Message(text))
	}
}

func (w *acpWatcher) isEdit(c *tools.Call) bool {
	return c.Name == "file_editor" && c.Args["command"] != "view"
}

func (w *acpWatcher) toolCall(id string, c *tools.Call) acp.ToolCall {
	call := acp.ToolCall{ID: id, Title: describe(c, w.dir), Kind: "other", RawInput: c.Args}
	path := w.onHost(c.Args["path"])
	if path != "" {
		call.Locations = []acp.Location{{Path: path}}
	}
	switch c.Name {
	case "execute_bash":
		call.Kind, call.Locations, call.Title = "execute", nil, commandLine(c)
	case "search", "find_files":
		call.Kind = "search"
	case "file_editor":
		call.Kind = "read"
		if w.isEdit(c) {
			call.Kind, call.Title = "edit", "Edit "+seenFrom(w.dir, c.Args["path"])+" (in the sandbox)"
		}
		switch before := c.Args["old_str"]; c.Args["command"] {
		case "create":
			call.Content = []acp.ToolContent{acp.Diff(path, nil, c.Args["file_text"])}
		case "str_replace":
			if before != "" {
				call.Content = []acp.ToolContent{acp.Diff(path, &before, c.Args["new_str"])}
			}
		case "insert":
			call.Content = []acp.ToolContent{acp.Diff(path, new(""), c.Args["new_str"])}
		}
	}
	return call
}

// onHost maps a path in the sandbox's repository to the user's repository.
func (w *acpWatcher) onHost(path string) string {
	if w.dir == "" || w.source == "" || path == "" {
		return path
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(w.dir, path)
	}
	if below, err := filepath.Rel(w.dir, path); err == nil && filepath.IsLocal(below) {
		return filepath.Join(w.source, below)
	}
	return path
}

// spokenText is a reply without its calls and the marks around its thoughts.
func spokenText(reply string) string {
	reply, _, _ = strings.Cut(reply, "<function=")
	return strings.TrimSpace(strings.NewReplacer("<think>", "", "</think>", "\n").Replace(reply))
}

// clipped is an output without its middle, if it is long.
func clipped(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= shownOutput {
		return text
	}
	half := shownOutput / 2
	return strings.ToValidUTF8(text[:half], "") + "\n…\n" + strings.ToValidUTF8(text[len(text)-half:], "")
}

// replayTo tells an editor what happened in a run.
func replayTo(t *acp.Turn, s *solveRun) error {
	t.Update(acp.UserMessage(s.settings.Statement))
	events, err := s.readEvents()
	if err != nil || len(events) == 0 {
		return err
	}
	w := &acpWatcher{turn: t, source: s.settings.Repo, dir: s.settings.Repo, open: map[string]bool{}}
	format, known := agent.FormatNamed(events[0].Header.Format)
	step := 0
	var calls []agent.Action
	for _, e := range events {
		switch {
		case e.Kind == trajectory.KindMessage && agent.IsFurther(*e.Message):
			t.Update(acp.UserMessage(agent.FurtherText(*e.Message)))
		case e.Kind == trajectory.KindReply && known:
			step++
			w.event(agent.Event{Kind: agent.EventReply, Step: step, Text: e.Reply.Message.Content})
			calls = format.Parse(agent.Reply{Message: e.Reply.Message}).Actions
		case e.Kind == trajectory.KindObservation && len(calls) > 0:
			call := &calls[0].Call
			calls = calls[1:]
			w.event(agent.Event{Kind: agent.EventCall, Step: step, Call: call})
			w.event(agent.Event{Kind: agent.EventResult, Step: step, Call: call,
				Result: &tools.Result{Output: e.Observation.Message.Content}})
		case e.Kind == trajectory.KindStop && e.Stop.Answer != "":
			t.Update(acp.Message(e.Stop.Answer))
		}
	}
	return nil
}
