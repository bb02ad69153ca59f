package foreign

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"deepswe/agent"
	"deepswe/agent/trajectory"
)

// line is a message with a number. Two messages that mean the same have the same number.
type line struct {
	agent.Message
	number int
}

// script is an agent that acts at random like real agents, and keeps the expected result by numbers alone.
type script struct {
	*testing.T
	*rand.Rand
	g     *gateway
	count int
	// talks are the agent's own copies of the conversations, each of which ends with a reply.
	talks [][]line
	calls []truth
}

// truth is a call of the model as the independent matcher sees it.
type truth struct {
	prompt []int // numbers of its messages
	reply  int
	chain  int
	from   int // the call that its conversation continues; -1 if it begins one
}

func (s *script) number() int { s.count++; return s.count }

// offered is the tool, in the forms of all dialects.
var offered = []any{map[string]any{
	"type": "function", "name": "bash", "function": map[string]any{"name": "bash", "parameters": map[string]any{}},
	"parameters": map[string]any{}, "input_schema": map[string]any{"type": "object"},
}}

// ask sends a conversation in one of the dialects, with random changes of the kind that agents make.
func (s *script) ask(talk []line) agent.Message {
	d, body := s.spell(talk)
	r, err := d.read(body)
	if err != nil {
		s.Fatal(err)
	}
	r.messages = settle(r.messages)
	answer, reply, refused := s.g.complete(r)
	if refused != nil {
		s.Fatal(refused)
	}
	s.g.mu.Lock()
	reply.used = true
	s.g.mu.Unlock()
	return answer.Message
}

func (s *script) spell(talk []line) (dialect, []byte) {
	args := func(text string) string { // the same JSON with other spaces and another order
		var v map[string]any
		if json.Unmarshal([]byte(text), &v) != nil {
			s.Fatalf("arguments %q", text)
		}
		if s.IntN(2) == 0 {
			return fmt.Sprintf(`{ "b":%v,  "a" : %q }`, v["b"], v["a"])
		}
		return fmt.Sprintf(`{"a":%q,"b":%v}`, v["a"], v["b"])
	}
	space := func(text string) string { return text + []string{"", "\n", " "}[s.IntN(3)] }
	kind := s.IntN(3)
	var list []any
	for _, m := range talk {
		thoughts := m.Reasoning
		if s.IntN(3) == 0 {
			thoughts = ""
		}
		switch kind {
		case 0:
			one := map[string]any{"role": m.Role, "content": space(m.Content), "tool_call_id": m.ToolCallID,
				"reasoning_content": thoughts, "provider_specific_fields": map[string]any{"x": s.IntN(9)}}
			if m.Content == "" && s.IntN(2) == 0 {
				one["content"] = nil
			}
			var calls []any
			for _, c := range m.ToolCalls {
				calls = append(calls, map[string]any{"id": c.ID, "type": "function",
					"function": map[string]any{"name": c.Name, "arguments": args(c.Arguments)}})
			}
			if calls != nil {
				one["tool_calls"] = calls
			}
			list = append(list, one)
		case 1:
			var parts []any
			if m.Role == agent.RoleTool {
				list = append(list, map[string]any{"role": "user", "content": []any{map[string]any{
					"type": "tool_result", "tool_use_id": m.ToolCallID,
					"content": []any{map[string]any{"type": "text", "text": space(m.Content)}},
				}}})
				continue
			}
			if thoughts != "" {
				parts = append(parts, map[string]any{"type": "thinking", "thinking": thoughts, "signature": "s"})
			}
			if m.Content != "" {
				parts = append(parts, map[string]any{
					"type": "text", "text": space(m.Content), "cache_control": map[string]any{"type": "ephemeral"},
				})
			}
			for _, c := range m.ToolCalls {
				parts = append(parts, map[string]any{
					"type": "tool_use", "id": c.ID, "name": c.Name, "input": json.RawMessage(args(c.Arguments)),
				})
			}
			list = append(list, map[string]any{"role": m.Role, "content": parts})
		case 2:
			if m.Role == agent.RoleTool {
				list = append(list, map[string]any{
					"type": "function_call_output", "call_id": m.ToolCallID, "output": space(m.Content),
				})
				continue
			}
			if thoughts != "" {
				list = append(list, map[string]any{"type": "reasoning", "summary": []any{}, "content": []any{
					map[string]any{"type": "reasoning_text", "text": thoughts},
				}})
			}
			if m.Content != "" {
				list = append(list, map[string]any{"type": "message", "id": fmt.Sprint(s.IntN(99)), "role": m.Role,
					"content": []any{map[string]any{"type": "input_text", "text": space(m.Content)}}})
			}
			for _, c := range m.ToolCalls {
				list = append(list, map[string]any{
					"type": "function_call", "id": fmt.Sprint(s.IntN(99)), "call_id": c.ID, "name": c.Name,
					"arguments": args(c.Arguments),
				})
			}
		}
	}
	switch kind {
	case 0:
		return chat{}, encode(s.T, map[string]any{"messages": list, "tools": offered, "n": 1})
	case 1:
		return messages{}, encode(s.T, map[string]any{"messages": list, "tools": []any{map[string]any{
			"name": "bash", "input_schema": map[string]any{},
		}}, "max_tokens": 99})
	}
	return responses{}, encode(s.T, map[string]any{"input": list, "tools": offered, "store": false})
}

// step lets the agent do one thing.
func (s *script) step() {
	base, at := []line{}, -1
	if len(s.talks) > 0 && s.IntN(6) > 0 {
		at = s.IntN(len(s.talks))
		if s.IntN(2) == 0 {
			at = len(s.talks) - 1
		}
		base = slices.Clone(s.talks[at])
	}
	if at >= 0 {
		switch s.IntN(8) {
		case 0: // the same again
			s.call(base[:len(base)-1])
			return
		case 1: // something earlier was changed
			i := s.IntN(len(base))
			if base[i].Role != agent.RoleTool && base[i].Content != "" {
				base[i].number = s.number()
				base[i].Content = fmt.Sprint(statement, "changed ", base[i].number)
			}
		}
	}
	s.call(s.further(base))
}

// further adds what an agent would say next.
func (s *script) further(talk []line) []line {
	if n := len(talk); n > 0 {
		for _, c := range talk[n-1].ToolCalls {
			number := s.number()
			talk = append(talk, line{agent.Message{
				Role: agent.RoleTool, Content: fmt.Sprint("result ", number), ToolCallID: c.ID,
			}, number})
		}
		if len(talk) > n && s.IntN(2) == 0 {
			return talk
		}
	}
	number := s.number()
	return append(talk, line{agent.Message{Role: agent.RoleUser, Content: fmt.Sprint(statement, "word ", number)}, number})
}

// call sends a conversation, and checks the answer against the independent matcher, which compares whole conversations
// by their numbers.
func (s *script) call(talk []line) {
	var prompt []int
	for _, m := range talk {
		prompt = append(prompt, m.number)
	}
	message := s.ask(talk)
	from, again := -1, -1
	for i, c := range s.calls {
		if known := append(slices.Clone(c.prompt), c.reply); len(known) <= len(prompt) &&
			slices.Equal(known, prompt[:len(known)]) && (from < 0 || len(c.prompt) >= len(s.calls[from].prompt)) {
			from = i
		}
		if slices.Equal(c.prompt, prompt) {
			again = i
		}
	}
	if again >= 0 && !s.continued(again) {
		if s.talks[again][len(prompt)].Content != message.Content {
			s.Errorf("a retry of call %d got another answer: %q", again, message.Content)
		}
		return
	}
	c := truth{prompt: prompt, reply: s.number(), from: from, chain: s.chains()}
	if from >= 0 && !s.continued(from) {
		c.chain = s.calls[from].chain
	}
	s.calls = append(s.calls, c)
	s.talks = append(s.talks, append(slices.Clone(talk), line{message, c.reply}))
}

// continued reports whether another call of the chain continues a call.
func (s *script) continued(i int) bool {
	return slices.ContainsFunc(s.calls, func(c truth) bool { return c.from == i && c.chain == s.calls[i].chain })
}

func (s *script) chains() int {
	n := 0
	for _, c := range s.calls {
		n = max(n, c.chain+1)
	}
	return n
}

// Whatever an agent does, and however it spells it, chains, rows and masks agree with those of an independent matcher.
func TestConversationTrees(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 31))
		n := 0
		model := &fake{reply: func(agent.Request) (agent.Reply, error) {
			n++
			m := agent.Message{Content: fmt.Sprint("reply ", n)}
			if r.IntN(2) == 0 {
				m.Reasoning = fmt.Sprint("thought ", n)
			}
			for i := range r.IntN(3) {
				m.ToolCalls = append(m.ToolCalls, agent.ToolCall{
					Name: "bash", Arguments: fmt.Sprintf(`{"a": "x %d", "b": 1.%d0}`, n, i),
				})
			}
			return agent.Reply{Message: m}, nil
		}}
		s := &script{T: t, Rand: r, g: newGateway(t, model, agent.Limits{Steps: -1})}
		for range 4 + r.IntN(12) {
			s.step()
		}
		s.check(finished(t, s.g))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// check compares the record with the expected result.
func (s *script) check(rec *trajectory.Recording) {
	if len(rec.Turns) != len(s.calls) {
		s.Fatalf("%d calls, want %d", len(rec.Turns), len(s.calls))
	}
	var chains []int
	for _, c := range s.calls {
		if !slices.Contains(chains, c.chain) {
			chains = append(chains, c.chain)
		}
	}
	got := map[string]int{} // the chain of each reply
	for _, e := range s.g.out.Events {
		if e.Reply != nil {
			got[e.Reply.Message.Content] = e.Chain
		}
	}
	for i, c := range s.calls {
		if reply := s.talks[i][len(c.prompt)].Content; got[reply] != c.chain {
			s.Errorf("call %d is in chain %d, want %d", i, got[reply], c.chain)
		}
	}
	samples, ok := rec.Samples()
	if !ok || len(samples) != len(s.calls) {
		s.Fatalf("%d samples (%v), want %d", len(samples), ok, len(s.calls))
	}
	rows, trained := 0, map[int32]int{}
	var last []int32
	for _, one := range samples {
		if !slices.Equal(one.PromptIDs[:min(len(last), len(one.PromptIDs))], last) || last == nil {
			rows++
		}
		last = append(slices.Clone(one.PromptIDs), one.CompletionIDs...)
		trained[one.CompletionIDs[0]]++
	}
	if rows != len(chains) {
		s.Errorf("%d rows of %d chains", rows, len(chains))
	}
	for i, c := range s.calls {
		want := s.row(c)
		j := slices.IndexFunc(samples, func(o agent.Sample) bool { return o.CompletionIDs[0] == want[len(want)-1] })
		if j < 0 || trained[want[len(want)-1]] != 1 {
			s.Errorf("reply %d is trained %d times", i, trained[want[len(want)-1]])
			continue
		}
		if got := append(slices.Clone(samples[j].PromptIDs), samples[j].CompletionIDs...); !slices.Equal(got, want) {
			s.Errorf("call %d: the row is %v, want %v", i, got, want)
		}
	}
}

// row returns the tokens of a call's conversation, with the replies as they were sampled.
func (s *script) row(c truth) []int32 {
	i := slices.IndexFunc(s.calls, func(o truth) bool { return o.reply == c.reply })
	var row []int32
	for _, m := range s.talks[i] {
		row = append(row, token(m.Message))
	}
	return row
}
