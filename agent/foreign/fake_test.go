package foreign

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// fake is a model whose replies are all different. Each message is one token that identifies it, and so is each reply.
type fake struct {
	reply func(agent.Request) (agent.Reply, error)

	mu    sync.Mutex
	asked []agent.Request
}

func (m *fake) Complete(_ context.Context, r agent.Request) (agent.Reply, error) {
	m.mu.Lock()
	m.asked = append(m.asked, r)
	m.mu.Unlock()
	answer, err := m.reply(r)
	if err != nil {
		return answer, err
	}
	s := &agent.Sample{CompletionIDs: []int32{token(answer.Message)}, Logprobs: []float64{-1}}
	fresh := r.Messages
	if r.Sampled != nil {
		s.PromptIDs = append(append(s.PromptIDs, r.Sampled.PromptIDs...), r.Sampled.CompletionIDs...)
		fresh = r.Messages[r.Fresh:]
	}
	for _, m := range fresh {
		s.PromptIDs = append(s.PromptIDs, token(m))
	}
	answer.Tokens = s
	answer.Usage = agent.Usage{Prompt: len(s.PromptIDs), Completion: 1}
	return answer, nil
}

func (m *fake) requests() []agent.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// token returns the token of a message. Of calls only the number counts, because agents rewrite the arguments.
func token(m agent.Message) int32 {
	h := fnv.New32a()
	fmt.Fprint(h, cmp.Or(m.Role, agent.RoleAssistant), "|", strings.TrimSpace(m.Content), "|", len(m.ToolCalls))
	return int32(h.Sum32() >> 1)
}

// counting answers with numbered texts.
func counting() *fake {
	n := 0
	var mu sync.Mutex
	return &fake{reply: func(agent.Request) (agent.Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		return agent.Reply{Message: agent.Message{
			Content: fmt.Sprintf("reply number %d, which is long enough to be known again", n),
		}}, nil
	}}
}

// statement is the text of the task.
const statement = "the tests of the parser fail"

// newGateway returns the gateway of a rollout that has no sandbox.
func newGateway(t testing.TB, m agent.Model, limits agent.Limits) *gateway {
	t.Helper()
	g := &gateway{
		Agent:  &agent.Agent{Settings: agent.Settings{Model: m, ModelName: "fake", Tokens: true, Limits: limits}},
		recipe: Recipe{Name: "fake", Version: "1", SubAgents: []string{"task"}},
		issue:  agent.Issue{ID: "task", Statement: statement},
		past:   map[string][]agent.Reply{},
		tree:   newTree(), now: time.Now, waiting: func() func() { return func() {} },
	}
	g.life, g.end = context.WithCancelCause(t.Context())
	t.Cleanup(func() {
		g.end(nil)
		g.work.Wait()
	})
	return g
}

// complete answers a request.
func (g *gateway) complete(r request) (agent.Reply, *reply, *refusal) {
	c := g.beginCall(r)
	<-c.done
	refused, _ := errors.AsType[*refusal](c.err)
	return c.answer, c.reply, refused
}

// finished ends the rollout and returns its record.
func finished(t *testing.T, g *gateway) *trajectory.Recording {
	t.Helper()
	g.work.Wait()
	if _, err := g.finish(agent.Submitted, nil, time.Second); err != nil {
		t.Fatal(err)
	}
	rec, err := trajectory.Record(g.out.Events)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func toolNamed(name string) tools.Spec {
	return tools.Spec{Name: name, Parameters: json.RawMessage(`{}`)}
}
