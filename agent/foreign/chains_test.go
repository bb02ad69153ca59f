package foreign

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"deepswe/agent"
	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// talk sends a conversation as an agent would, with or without tools, and returns the reply.
func talk(t *testing.T, g *gateway, withTools bool, said ...string) string {
	t.Helper()
	r := request{}
	for i, text := range said {
		m := agent.Message{Role: agent.RoleUser, Content: text}
		if i%2 == 1 {
			m.Role = agent.RoleAssistant
		}
		r.messages = append(r.messages, m)
	}
	if withTools {
		r.tools = append(r.tools, toolNamed("bash"))
	}
	answer, reply, refused := g.complete(r)
	if refused != nil {
		t.Fatal(refused)
	}
	g.mu.Lock()
	reply.used = true
	g.mu.Unlock()
	return answer.Message.Content
}

// kinds lists the kinds of the chains in the order in which they are read, each with its number of replies and how many
// of these are not trained on.
func kinds(rec *trajectory.Recording) string {
	var all []string
	for _, c := range rec.Stop.Chains {
		all = append(all, fmt.Sprintf("%s %d-%d", c.Kind, c.Replies, len(c.Untrained)))
	}
	return strings.Join(all, ", ")
}

// The request for a title is not trained on, even if it comes first.
func TestTitle(t *testing.T) {
	t.Parallel()
	g := newGateway(t, counting(), agent.Limits{})
	talk(t, g, false, "write a title for: "+statement)
	task := "fix this: " + statement
	first := talk(t, g, true, task)
	talk(t, g, true, task, first, "go on")
	rec := finished(t, g)
	if got := kinds(rec); got != "main 2-0, auxiliary 1-1" {
		t.Error(got)
	}
	if rec.Turns[0].Reply.Message.Content != first || !rec.Turns[2].Untrained {
		t.Errorf("the main conversation is not read first: %+v", rec.Turns)
	}
	var offered []int
	for _, one := range trajectory.Conversations(g.out.Events) {
		offered = append(offered, len(one[0].Header.Tools))
	}
	if !slices.Equal(offered, []int{1, 0}) || len(rec.Header.Tools) != 1 {
		t.Errorf("conversations with %v tools, and a recording with %d", offered, len(rec.Header.Tools))
	}
}

// After a compaction, both the summary and the conversation that begins with it are trained on.
func TestCompaction(t *testing.T) {
	t.Parallel()
	for _, withTools := range []bool{true, false} { // whether the summary is asked for with tools
		g := newGateway(t, counting(), agent.Limits{})
		first := talk(t, g, true, statement)
		talk(t, g, true, statement, first, "go on")
		summary := talk(t, g, withTools, "summarise the conversation: "+first)
		if got := len(summary); got < telling {
			t.Fatalf("a summary of %d bytes", got)
		}
		talk(t, g, true, "The conversation was compacted. Its summary: "+summary)
		rec := finished(t, g)
		want := "main 2-0, continuation 1-0, auxiliary 1-0"
		if withTools { // with tools, it also begins with what the model said
			want = "main 2-0, continuation 1-0, continuation 1-0"
		}
		if got := kinds(rec); got != want {
			t.Errorf("tools %v: %s", withTools, got)
		}
	}
}

// Two sub-agents that run at the same time have conversations of their own. A request from a command of the model is no
// sub-agent, although its text is in a call as well.
func TestSubAgents(t *testing.T) {
	t.Parallel()
	find, read := "find every caller of the parser", "read the tests and say what they want"
	n := 0
	var mu sync.Mutex
	g := newGateway(t, &fake{reply: func(r agent.Request) (agent.Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		m := agent.Message{Content: fmt.Sprint("reply ", n)}
		if len(r.Messages) == 1 && strings.Contains(r.Messages[0].Content, statement) {
			for _, call := range [][2]string{{"task", find}, {"task", read}, {"bash", "curl -d 'who are you, policy?'"}} {
				m.ToolCalls = append(m.ToolCalls, agent.ToolCall{
					Name: call[0], Arguments: fmt.Sprintf(`{"prompt": %q}`, call[1]),
				})
			}
		}
		return agent.Reply{Message: m}, nil
	}}, agent.Limits{})
	talk(t, g, true, statement)
	var work sync.WaitGroup
	for _, prompt := range []string{find, read} {
		work.Go(func() {
			answer := talk(t, g, true, prompt)
			talk(t, g, true, prompt, answer, "go on")
		})
	}
	work.Wait()
	stranger := request{
		messages: []agent.Message{{Role: agent.RoleUser, Content: "who are you, policy?"}},
		tools:    []tools.Spec{toolNamed("curl")},
	}
	if _, _, refused := g.complete(stranger); refused != nil {
		t.Fatal(refused)
	}
	rec := finished(t, g)
	if got := kinds(rec); got != "main 1-0, sub_agent 2-0, sub_agent 2-0, auxiliary 1-1" {
		t.Error(got)
	}
	if samples, ok := rec.Samples(); !ok || len(samples) != 5 {
		t.Errorf("%d samples (%v)", len(samples), ok)
	}
}

// An agent that is started by a command of the model has the same tools, but it does not continue the conversation that
// waits for the command. After the command, that one goes on, and may be compacted later.
func TestAgentInItsOwnShell(t *testing.T) {
	t.Parallel()
	g := newGateway(t, counting(), agent.Limits{})
	first := talk(t, g, true, statement)
	inner := talk(t, g, true, "say what two and two are")
	talk(t, g, true, "say what two and two are", inner, "is that so?")
	talk(t, g, true, statement, first, "it is four")
	talk(t, g, true, "(what came before was left out) go on")
	if got := kinds(finished(t, g)); got != "main 2-0, continuation 1-0, auxiliary 2-2" {
		t.Error(got)
	}
}

// An agent that edits its history has several main conversations, and every reply is trained on once.
func TestEditedHistory(t *testing.T) {
	t.Parallel()
	g := newGateway(t, counting(), agent.Limits{})
	first := talk(t, g, true, statement)
	second := talk(t, g, true, statement, first, "the output of a command, which is long")
	talk(t, g, true, statement, first, "(output left out)", second, "go on")
	rec := finished(t, g)
	if got := kinds(rec); got != "main 2-0, main 1-0" {
		t.Error(got)
	}
	if samples, ok := rec.Samples(); !ok || len(samples) != 3 {
		t.Errorf("%d samples (%v)", len(samples), ok)
	}
}
