package llm_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/agent/llm/llmtest"
)

// waits records the pauses between attempts instead of sleeping.
type waits []time.Duration

func (w *waits) sleep(ctx context.Context, d time.Duration) error {
	*w = append(*w, d)
	return ctx.Err()
}

// dial returns a client that talks to the handler over a real connection.
func dial(t *testing.T, h http.Handler, o llm.Options) *llm.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	o.BaseURL = srv.URL
	c, err := llm.New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.SetSleep(new(waits).sleep)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func ask(content string) agent.Request {
	return agent.Request{Messages: []agent.Message{{Role: agent.RoleUser, Content: content}}}
}

func TestCompleteReturnsWhatTheServerSaid(t *testing.T) {
	fake := llmtest.New(llmtest.Reply{
		Content: "I look. <b>&amp;</b>", Reasoning: "hm", ReasoningName: "reasoning_content",
		Calls: []llmtest.Call{{ID: "a", Name: "search", Arguments: `{"search_term": "x"}`},
			{ID: "b", Name: "finish", Arguments: `{`}},
	})
	got, err := dial(t, fake, llm.Options{}).Complete(t.Context(), ask("fix it"))
	if err != nil {
		t.Fatal(err)
	}
	want := agent.Message{
		Role: agent.RoleAssistant, Content: "I look. <b>&amp;</b>", Reasoning: "hm",
		ToolCalls: []agent.ToolCall{{ID: "a", Name: "search", Arguments: `{"search_term": "x"}`},
			{ID: "b", Name: "finish", Arguments: `{`}},
	}
	if diff := cmp.Diff(want, got.Message); diff != "" {
		t.Error(diff)
	}
	if got.FinishReason != "tool_calls" || got.Model != "test-model" || got.Usage.Prompt == 0 ||
		got.Usage.Completion == 0 || got.Elapsed <= 0 {
		t.Errorf("got %+v", got)
	}
}

// A streamed answer equals the same answer sent whole, whatever it contains.
func TestStreamedEqualsWhole(t *testing.T) {
	var reply llmtest.Reply
	fake := &llmtest.Server{Answer: func(llmtest.Request) llmtest.Reply { return reply }}
	c := dial(t, fake, llm.Options{})
	text := rapid.StringMatching("[a-z<>&=\"\\\\\n\u00e9\u4e16 ]{0,40}")
	rapid.Check(t, func(t *rapid.T) {
		reply = llmtest.Reply{
			Content:       text.Draw(t, "content"),
			Reasoning:     text.Draw(t, "reasoning"),
			ReasoningName: rapid.SampledFrom([]string{"reasoning", "reasoning_content"}).Draw(t, "name"),
			KeepAlive:     rapid.IntRange(0, 3).Draw(t, "comments"),
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
			reply.Calls = append(reply.Calls, llmtest.Call{ID: string(rune('a' + i)), Name: "search",
				Arguments: text.Draw(t, "arguments")})
		}
		whole, err := c.Complete(context.Background(), ask("x"))
		if err != nil {
			t.Fatal(err)
		}
		var watched strings.Builder
		r := ask("x")
		r.OnText = func(s string) { watched.WriteString(s) }
		streamed, err := c.Complete(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		whole.Elapsed, streamed.Elapsed = 0, 0
		if diff := cmp.Diff(whole, streamed); diff != "" {
			t.Error(diff)
		}
		if watched.String() != reply.Reasoning+reply.Content {
			t.Errorf("watched %q", watched.String())
		}
	})
}

func TestStreamSurvivesALongPrefill(t *testing.T) {
	fake := llmtest.New(llmtest.Reply{Content: "done", KeepAlive: 2000})
	r := ask("x")
	r.OnText = func(string) {}
	got, err := dial(t, fake, llm.Options{}).Complete(t.Context(), r)
	if err != nil || got.Message.Content != "done" {
		t.Fatalf("got %q, %v", got.Message.Content, err)
	}
}

// Servers number the calls of a stream differently.
func TestStreamedCallsAreToldApart(t *testing.T) {
	chunk := func(calls string) string {
		return `data: {"choices":[{"index":0,"delta":{"tool_calls":` + calls + `}}]}` + "\n\n"
	}
	end := `data: {"error": null, "choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` +
		"\n\ndata: [DONE]\n\n"
	two := []agent.ToolCall{{ID: "a", Name: "search", Arguments: `{"x":1}`}, {ID: "b", Name: "finish", Arguments: `{}`}}
	tests := map[string]struct {
		body string
		want []agent.ToolCall
	}{
		"by index, interleaved": {
			chunk(`[{"index":0,"id":"a","function":{"name":"search","arguments":""}},{"index":1,"id":"b","function":{"name":"finish","arguments":"{"}}]`) +
				chunk(`[{"index":0,"function":{"arguments":"{\"x\""}},{"index":1,"function":{"arguments":"}"}}]`) +
				chunk(`[{"index":0,"function":{"arguments":":1}"}}]`), two,
		},
		"all with index 0": {
			chunk(`[{"index":0,"id":"a","function":{"name":"search","arguments":"{\"x\":1}"}}]`) +
				chunk(`[{"index":0,"id":"b","function":{"name":"finish","arguments":"{}"}}]`), two,
		},
		"without an index": {
			chunk(`[{"id":"a","function":{"name":"search","arguments":"{\"x\""}}]`) +
				chunk(`[{"function":{"arguments":":1}"}}]`) +
				chunk(`[{"id":"b","function":{"name":"finish","arguments":"{}"}}]`), two,
		},
		"name and id repeated": {
			chunk(`[{"index":0,"id":"a","function":{"name":"search","arguments":"{\"x\""}}]`) +
				chunk(`[{"index":0,"id":"a","function":{"name":"search","arguments":":1}"}}]`), two[:1],
		},
		"arguments as an object": {
			chunk(`[{"index":0,"id":"a","function":{"name":"search","arguments":{"x":1}}}]`), two[:1],
		},
		"no id at all": {
			chunk(`[{"index":0,"function":{"name":"search","arguments":"{}"}}]`),
			[]agent.ToolCall{{ID: "call_1_0", Name: "search", Arguments: "{}"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := ask("x")
			r.OnText = func(string) {}
			fake := llmtest.New(llmtest.Body(200, "text/event-stream", tt.body+end))
			got, err := dial(t, fake, llm.Options{}).Complete(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.Message.ToolCalls); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Odd replies that can still be read as an answer.
func TestAnswersOfManyKinds(t *testing.T) {
	tests := map[string]struct {
		body string
		want agent.Message
	}{
		"null content": {`{"choices":[{"message":{"content":null},"finish_reason":"stop"}]}`, agent.Message{}},
		"no finish":    {`{"choices":[{"message":{"content":"x"}}]}`, agent.Message{Content: "x"}},
		"parts": {`{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}]}`,
			agent.Message{Content: "ab"}},
		"refusal": {`{"choices":[{"message":{"content":null,"refusal":"no"}}]}`, agent.Message{Content: "no"}},
		"both reasoning": {`{"choices":[{"message":{"content":"x","reasoning":"r","reasoning_content":"r"}}]}`,
			agent.Message{Content: "x", Reasoning: "r"}},
		"error is null":  {`{"error":null,"choices":[{"message":{"content":"x"}}]}`, agent.Message{Content: "x"}},
		"created is odd": {`{"created":"yesterday","choices":[{"message":{"content":"x"}}]}`, agent.Message{Content: "x"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.want.Role = agent.RoleAssistant
			for _, streamed := range []bool{false, true} { // a server may stream nothing, but answer whole
				r := ask("x")
				if streamed {
					r.OnText = func(string) {}
				}
				got, err := dial(t, llmtest.New(llmtest.Body(200, "text/plain", "\n"+tt.body)), llm.Options{}).Complete(t.Context(),
					r)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got.Message); diff != "" {
					t.Errorf("streamed %v: %s", streamed, diff)
				}
			}
		})
	}
}

func TestTokensAreExactlyWhatWasSampled(t *testing.T) {
	fake := llmtest.New(llmtest.Text("first"), llmtest.Text("second"))
	c := dial(t, fake, llm.Options{})
	r := ask("go")
	r.Tokens = true
	r.OnText = func(string) { t.Error("a request for tokens was streamed") }
	first, err := c.Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if got := llmtest.Detokenize(first.Tokens.PromptIDs); got != "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n" {
		t.Errorf("prompt %q", got)
	}
	if got := llmtest.Detokenize(first.Tokens.CompletionIDs); got != "first<|im_end|>" {
		t.Errorf("completion %q", got)
	}
	for i, id := range first.Tokens.CompletionIDs {
		if first.Tokens.Logprobs[i] != llmtest.Logprob(id) {
			t.Errorf("token %d: logprob %v", i, first.Tokens.Logprobs[i])
		}
	}
	r.Messages = append(r.Messages, first.Message, agent.Message{Role: agent.RoleUser, Content: "on"})
	second, err := c.Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	grown := append(first.Tokens.PromptIDs, first.Tokens.CompletionIDs...)
	if diff := cmp.Diff(grown, second.Tokens.PromptIDs[:len(grown)]); diff != "" {
		t.Errorf("the second prompt does not extend the first turn: %s", diff)
	}
}

func TestTokensThatDoNotPairUp(t *testing.T) {
	edit := func(change func(top, choice map[string]any)) llmtest.Reply {
		r := llmtest.Text("hello")
		r.Edit = func(a map[string]any) { change(a, a["choices"].([]any)[0].(map[string]any)) }
		return r
	}
	tests := map[string]struct {
		reply   llmtest.Reply
		message string // of the error; empty if there is none, but Tokens is nil
	}{
		"no ids":         {edit(func(_, c map[string]any) { delete(c, "token_ids") }), ""},
		"no prompt ids":  {edit(func(top, _ map[string]any) { delete(top, "prompt_token_ids") }), ""},
		"no logprobs":    {edit(func(_, c map[string]any) { c["logprobs"] = nil }), ""},
		"lengths differ": {edit(func(_, c map[string]any) { c["token_ids"] = []int{1} }), "1 token ids and 3 logprobs"},
		"a logprob lacks": {edit(func(_, c map[string]any) {
			c["token_ids"], c["logprobs"] = []int{7}, map[string]any{"content": []any{map[string]any{"logprob": nil}}}
		}), "token 0 has no logprob"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := ask("x")
			r.Tokens = true
			fake := llmtest.New(tt.reply)
			got, err := dial(t, fake, llm.Options{}).Complete(t.Context(), r)
			if tt.message == "" {
				if err != nil || got.Tokens != nil || got.Message.Content != "hello" {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			if !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(), tt.message) ||
				len(fake.Requests()) != 1 {
				t.Errorf("after %d requests: %v", len(fake.Requests()), err)
			}
		})
	}
}

func TestNewRefusesAndMendsBaseURLs(t *testing.T) {
	tests := map[string]string{
		"http://localhost:8000":                   "http://localhost:8000/v1",
		"localhost:8000/":                         "http://localhost:8000/v1",
		"https://host/v1/":                        "https://host/v1",
		"https://host/openai/v1/chat/completions": "https://host/openai/v1",
		" http://host:1/api ":                     "http://host:1/api",
		"http://user:hunter2@host/v1":             "http://user:xxxxx@host/v1",
		"":                                        "error: no model endpoint: set --base-url or DEEPSWE_BASE_URL, for example to http://localhost:8000/v1",
		"ftp://host/v1":                           "error: model endpoint ftp://host/v1: want http or https, a host, and neither query nor fragment",
		"http://host/v1?key=1":                    "error: model endpoint http://host/v1?key=1: want http or https, a host, and neither query nor fragment",
		"http://user:hunter2@ho st/%zz":           "error: the model endpoint is not a valid URL: set --base-url, for example to http://localhost:8000/v1",
	}
	for in, want := range tests {
		c, err := llm.New(llm.Options{BaseURL: in})
		var got string
		if err != nil {
			got = "error: " + err.Error()
		} else {
			got = c.Endpoint()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if _, err := llm.New(llm.Options{BaseURL: "http://host", APIKey: "two\nlines"}); err == nil ||
		strings.Contains(err.Error(), "lines") {
		t.Errorf("a key of two lines: %v", err)
	}
}
