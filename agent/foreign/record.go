package foreign

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	"deepswe/agent"
	"deepswe/agent/trajectory"
)

func (c *call) prompt() string { return hex.EncodeToString(c.key[:16]) }

// record keeps what was said in a call, before the agent gets the answer. The caller holds g.mu.
func (g *gateway) record(c *call, answer *agent.Reply) error {
	said := c.fresh
	var definitions []json.RawMessage
	if len(c.chain.replies) == 0 {
		said = c.path // a new conversation, or one that begins like another
		var err error
		if definitions, err = agent.Definitions(c.tools); err != nil {
			return err
		}
	}
	if len(g.out.Events) == 0 {
		g.offered = c.chain.offered
		if err := g.put(trajectory.HeaderEvent(g.header(definitions))); err != nil {
			return err
		}
	}
	for i, m := range said {
		e := trajectory.MessageEvent(m)
		if m.Role == agent.RoleTool && len(c.chain.replies) > 0 {
			e = trajectory.ObservationEvent(trajectory.Observation{
				Message: m, Results: []trajectory.Result{{CallID: m.ToolCallID, Output: m.Content}},
			})
		}
		e.Chain = c.chain.id
		if i == 0 && c.chain.offered != g.offered {
			e.Tools = definitions
		}
		if err := g.put(e); err != nil {
			return err
		}
	}
	answer.Prompt = c.prompt()
	answer.Calls, answer.Problem = calls(answer.Message)
	e := trajectory.ReplyEvent(*answer)
	e.Chain = c.chain.id
	if err := g.put(e); err != nil {
		return err
	}
	r := g.tree.end(c, *answer)
	r.seq = int64(len(g.out.Events))
	g.out.Steps++
	g.out.Usage.Add(answer.Usage)
	g.out.ModelTime += answer.Elapsed
	if answer.Problem != "" {
		g.out.FormatErrors++
	}
	g.emit(agent.Event{
		Kind: agent.EventReply, Text: answer.Message.Content, Usage: &answer.Usage, Elapsed: answer.Elapsed,
	})
	return nil
}

// calls returns the calls of a reply that can be run, and what is wrong with the others.
func calls(m agent.Message) (ok []trajectory.Call, problem string) {
	for _, c := range m.ToolCalls {
		var args map[string]json.RawMessage
		if json.Unmarshal([]byte(c.Arguments), &args) != nil {
			problem = "the arguments of a call are no JSON object"
			continue
		}
		one := trajectory.Call{ID: c.ID, Name: c.Name, Args: map[string]string{}}
		for name, value := range args {
			var text string
			if json.Unmarshal(value, &text) != nil {
				text = string(value)
			}
			one.Args[name] = text
		}
		ok = append(ok, one)
	}
	return ok, problem
}

func (g *gateway) put(e trajectory.Event) error {
	e.Seq, e.Time = int64(len(g.out.Events)+1), g.now()
	if g.Record != nil {
		if err := g.Record.Append(e); err != nil {
			return fmt.Errorf("record the trajectory: %w", err)
		}
	}
	g.out.Events = append(g.out.Events, e)
	return nil
}

// emit reports progress. The caller holds g.mu.
func (g *gateway) emit(e agent.Event) {
	if g.OnEvent != nil {
		e.Time, e.Step = g.now(), g.out.Steps
		g.OnEvent(e)
	}
}

func (g *gateway) header(definitions []json.RawMessage) trajectory.Header {
	h := g.Header
	h.Agent, h.AgentVersion, h.Model, h.Task = g.recipe.Name, g.recipe.Version, g.ModelName, g.issue.ID
	h.Format, h.Tools = trajectory.FormatTools, definitions
	h.Extra = maps.Clone(h.Extra)
	if h.Extra == nil {
		h.Extra = map[string]any{}
	}
	h.Extra["dir"], h.Extra["sampling"] = g.dir, g.Sampling
	return h
}
