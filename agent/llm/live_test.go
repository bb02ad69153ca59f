package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/tools"
)

// TestLiveEndpoint runs against a real inference server, which DEEPSWE_TEST_ENDPOINT names. The replies do not matter,
// so a random model is enough.
func TestLiveEndpoint(t *testing.T) {
	url := os.Getenv("DEEPSWE_TEST_ENDPOINT")
	if url == "" {
		t.Skip("set DEEPSWE_TEST_ENDPOINT to the base URL of an OpenAI-compatible server")
	}
	c, err := llm.New(llm.Options{BaseURL: url, APIKey: os.Getenv("OPENAI_API_KEY"), Model: os.Getenv("DEEPSWE_MODEL")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()

	health, err := c.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", health)

	r := agent.Request{
		Messages: []agent.Message{
			{Role: agent.RoleSystem, Content: "Answer <briefly> & well."},
			{Role: agent.RoleUser, Content: "Look."},
			{Role: agent.RoleAssistant, Reasoning: "hm", ToolCalls: []agent.ToolCall{
				{ID: "c1", Name: "look", Arguments: `{"at": "x"}`}, {ID: "c2", Name: "look", Arguments: `{"at": `},
			}},
			{Role: agent.RoleTool, ToolCallID: "c1", Name: "look"},
			{Role: agent.RoleTool, ToolCallID: "c2", Name: "look", Content: "broken"},
			{Role: agent.RoleUser, Content: "And now?"},
		},
		Tools: []tools.Spec{{Name: "look", Description: "Looks.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"at":{"type":"string"}}}`)}},
		Sampling:  agent.Sampling{Temperature: new(0.0), TopP: new(1.0), Seed: new(int64(7))},
		MaxTokens: 24,
	}
	whole, err := c.Complete(t.Context(), r)
	if errors.Is(err, agent.ErrToolsUnsupported) {
		t.Log(err)
		r.Tools = nil
		whole, err = c.Complete(t.Context(), r)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", whole)
	if whole.Usage.Completion == 0 || whole.Usage.Completion > 24 || whole.FinishReason == "" {
		t.Errorf("got %+v", whole)
	}

	var watched strings.Builder
	r.OnText = func(s string) { watched.WriteString(s) }
	streamed, err := c.Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if streamed.Message.Content != whole.Message.Content || streamed.FinishReason != whole.FinishReason ||
		streamed.Usage.Completion != whole.Usage.Completion {
		t.Errorf("greedy answers differ:\n%+v\n%+v", whole, streamed)
	}
	if watched.String() != streamed.Message.Reasoning+streamed.Message.Content {
		t.Errorf("watched %q", watched.String())
	}

	if n := health.Model.Context; n > 0 && n < 1<<20 {
		liveOverflow(t, c, n)
	}
	liveCancel(t, c)
}

func liveOverflow(t *testing.T, c *llm.Client, tokens int) {
	_, err := c.Complete(t.Context(), ask(strings.Repeat("far too long. ", tokens)))
	if !errors.Is(err, agent.ErrContextOverflow) {
		t.Errorf("overflow: %v", err)
	}
	t.Log(err)
}

func liveCancel(t *testing.T, c *llm.Client) {
	ctx, cancel := context.WithCancel(t.Context())
	r := ask("Go on for ever.")
	start := time.Now()
	r.OnText = func(string) { start = time.Now(); cancel() }
	if _, err := c.Complete(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	t.Logf("left %s after the cancel", time.Since(start))
}
