package foreign

import (
	"context"
	"fmt"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/env"
	"deepswe/tools"
)

// Try lets the agent work in the sandbox against a stand-in for a model, and says what it asked. It is an error if it
// asks nothing.
func (p *Player) Try(ctx context.Context, sb env.Sandbox) (string, error) {
	stand := &standIn{began: time.Now()}
	a := &agent.Agent{Settings: agent.Settings{
		Model: stand, ModelName: modelName, Limits: agent.Limits{Steps: 3, Wall: 5 * time.Minute},
	}}
	out, err := p.Play(ctx, a, sb, agent.Issue{ID: "doctor", Statement: "Say that all is well, and change nothing."})
	if err != nil {
		return "", err
	}
	stand.mu.Lock()
	defer stand.mu.Unlock()
	return fmt.Sprintf("it asked the model after %v, with %d tools and about %d tokens, and ended after %v (%s)",
		stand.first.Round(100*time.Millisecond), len(stand.tools), stand.tokens, out.Elapsed.Round(100*time.Millisecond),
		out.StopReason), nil
}

// standIn says that all is well, and remembers the largest question.
type standIn struct {
	began time.Time

	mu     sync.Mutex
	first  time.Duration
	tools  []tools.Spec
	tokens int
}

func (s *standIn) Complete(_ context.Context, r agent.Request) (agent.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == 0 {
		s.first = time.Since(s.began)
	}
	c := call{request: request{messages: r.Messages, tools: r.Tools}, fresh: r.Messages}
	if n := c.tokens(); n > s.tokens {
		s.tokens, s.tools = n, r.Tools
	}
	return agent.Reply{Message: agent.Message{Content: "All is well."}, FinishReason: "stop"}, nil
}
