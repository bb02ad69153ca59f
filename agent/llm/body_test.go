package llm_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/agent/llm/llmtest"
	"deepswe/env/testkit"
	"deepswe/tools"
)

// The golden files are the bodies that are sent, with members that the library's typed structs would have lost.
func TestBodies(t *testing.T) {
	conversation := []agent.Message{
		{Role: agent.RoleSystem, Content: "Fix <it> & go."},
		{Role: agent.RoleUser, Content: "The issue."},
		{Role: agent.RoleAssistant, Reasoning: "look first", ToolCalls: []agent.ToolCall{
			{ID: "c1", Name: "execute_bash", Arguments: `{"cmd": "true"}`},
			{ID: "c2", Name: "search", Arguments: `{"search_term": `},
			{ID: "c3", Name: "finish"},
		}},
		{Role: agent.RoleTool, ToolCallID: "c1", Name: "execute_bash"},
		{Role: agent.RoleTool, ToolCallID: "c2", Name: "search", Content: "broken JSON"},
		{Role: agent.RoleTool, ToolCallID: "c3", Name: "finish", Content: "ok"},
		{Role: agent.RoleAssistant, Content: "done"},
		{Role: agent.RoleUser},
	}
	search := tools.Spec{Name: "search", Description: "Finds <text>.", Parameters: json.RawMessage(
		`{"type":"object","properties":{"search_term":{"type":"string"},"path":{"type":"string"}},"required":["search_term"]}`)}
	tests := map[string]agent.Request{
		"greedy": {
			Messages: ask("x").Messages, MaxTokens: 512,
			Sampling: agent.Sampling{Temperature: new(0.0), TopP: new(1.0), TopK: new(-1), MinP: new(0.0),
				RepetitionPenalty: new(1.0), Seed: new(int64(1 << 40))},
		},
		"conversation": {Messages: conversation, Tools: []tools.Spec{search}},
		"tokens":       {Messages: ask("x").Messages, Tokens: true, Sampling: agent.Sampling{Temperature: new(1.0)}},
		"streamed":     {Messages: ask("x").Messages, OnText: func(string) {}},
	}
	for name, r := range tests {
		t.Run(name, func(t *testing.T) {
			fake := llmtest.New(llmtest.Text("ok"))
			// The library would take this name for one of a hosted model, and refuse it.
			fake.Models = []llmtest.Model{{ID: "o3-local"}}
			if _, err := dial(t, fake, llm.Options{}).Complete(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, fake.Requests()[0].Body, "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			testkit.Golden(t, filepath.Join("testdata", "body", name+".json"), got.Bytes())
		})
	}
}

// An endpoint that cannot stream is asked for the whole answer.
func TestStreamingIsGivenUp(t *testing.T) {
	fake := llmtest.New(llmtest.Status(400, "'stream' is not supported with tools"), llmtest.Text("ok"))
	watched := ""
	r := ask("x")
	r.OnText = func(text string) { watched += text }
	reply, err := dial(t, fake, llm.Options{MaxRetries: -1}).Complete(t.Context(), r)
	if err != nil || reply.Message.Content != "ok" || watched != "ok" {
		t.Errorf("got %+v, %v, watched %q", reply, err, watched)
	}
	if asked := fake.Requests(); !asked[0].Stream || asked[1].Stream {
		t.Error("the second request is streamed, or the first is not")
	}
}

// Two user messages in a row, as after a continued run, are sent as one.
func TestUserMessagesAreJoined(t *testing.T) {
	fake := llmtest.New(llmtest.Text("ok"))
	r := ask("one")
	r.Messages = append(r.Messages, agent.Message{Role: agent.RoleUser, Content: "two"})
	if _, err := dial(t, fake, llm.Options{}).Complete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := string(fake.Requests()[0].Body); !strings.Contains(got, `[{"role":"user","content":"one\n\ntwo"}]`) {
		t.Errorf("sent %s", got)
	}
}

func TestTheKeyIsSent(t *testing.T) {
	fake := llmtest.New(llmtest.Text("ok"))
	fake.Key = "sk-1"
	if _, err := dial(t, fake, llm.Options{APIKey: " sk-1\n"}).Complete(t.Context(), ask("x")); err != nil {
		t.Fatal(err)
	}
}

// If a server refuses a member that the request can do without, that is learned after one refusal.
func TestDialectIsLearned(t *testing.T) {
	renamed := llmtest.Body(400, "application/json",
		`{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this `+
			`model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`)
	withReasoning := agent.Request{Messages: []agent.Message{
		{Role: agent.RoleUser, Content: "x"}, {Role: agent.RoleAssistant, Content: "y", Reasoning: "z"},
		{Role: agent.RoleUser, Content: "x"},
	}}
	tests := map[string]struct {
		refusal llmtest.Reply
		request agent.Request
		gone    string
		instead string
	}{
		"max_tokens": {renamed, agent.Request{Messages: ask("x").Messages, MaxTokens: 9}, "max_tokens",
			"max_completion_tokens"},
		"return_token_ids": {llmtest.Status(400, "Unrecognized request argument supplied: return_token_ids"),
			agent.Request{Messages: ask("x").Messages, Tokens: true}, "return_token_ids", "logprobs"},
		"stream_options": {llmtest.Body(422, "application/json",
			`{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}`),
			agent.Request{Messages: ask("x").Messages, OnText: func(string) {}}, "stream_options", "stream"},
		"reasoning_content": {llmtest.Status(400,
			"'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning_content' is unsupported)]"), withReasoning, "reasoning_content", ""},
		"reasoning": {llmtest.Status(400, "messages[1].reasoning: unknown field"), withReasoning, "reasoning", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fake := llmtest.New(tt.refusal, llmtest.Text("ok"), llmtest.Text("ok"))
			var w waits
			c := dial(t, fake, llm.Options{MaxRetries: -1})
			c.SetSleep(w.sleep)
			for range 2 {
				if _, err := c.Complete(t.Context(), tt.request); err != nil {
					t.Fatal(err)
				}
			}
			sent := fake.Requests()
			if len(sent) != 3 || len(w) != 0 {
				t.Fatalf("%d requests, pauses %v", len(sent), w)
			}
			quoted := []byte(`"` + tt.gone + `":`)
			if !bytes.Contains(sent[0].Body, quoted) || bytes.Contains(sent[1].Body, quoted) ||
				bytes.Contains(sent[2].Body, quoted) {
				t.Errorf("bodies:\n%s\n%s\n%s", sent[0].Body, sent[1].Body, sent[2].Body)
			}
			if tt.instead != "" && sent[2].Member(tt.instead) == nil {
				t.Errorf("%s is not in %s", tt.instead, sent[2].Body)
			}
		})
	}
}

// A sampling parameter that a server refuses is left out from then on, with one warning. A request for tokens fails
// instead, because a silent change would bias the ratios in training.
func TestSamplingThatIsRefused(t *testing.T) {
	refusal := llmtest.Body(400, "application/json",
		`{"error":{"message":"Unsupported value: 'temperature' does not support 0 `+
			`with this model.","param":"temperature","code":"unsupported_value"}}`)
	r := ask("x")
	r.Sampling.Temperature, r.Sampling.TopK = new(0.0), new(20)
	fake := llmtest.New(refusal, llmtest.Text("a"), llmtest.Text("b"))
	var log bytes.Buffer
	c := dial(t, fake, llm.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 2 {
		if _, err := c.Complete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	sent := fake.Requests()
	if len(sent) != 3 || sent[2].Member("temperature") != nil || string(sent[2].Member("top_k")) != "20" ||
		bytes.Count(log.Bytes(), []byte("does not take temperature: it is left out from now on")) != 1 {
		t.Errorf("%d requests, the last %s; said:\n%s", len(sent), sent[len(sent)-1].Body, log.Bytes())
	}

	fake, r.Tokens = llmtest.New(refusal), true
	_, err := dial(t, fake, llm.Options{}).Complete(t.Context(), r)
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("set --temperature")) || len(fake.Requests()) != 1 {
		t.Errorf("got %v", err)
	}
}
