package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/agent/llm/llmtest"
)

func TestFailuresThatPassAreRetried(t *testing.T) {
	half := llmtest.Text("half of this will not arrive")
	tests := map[string]struct {
		fault    llmtest.Reply
		streamed bool
	}{
		"408":               {fault: llmtest.Status(408, "timeout")},
		"409":               {fault: llmtest.Status(409, "conflict")},
		"425":               {fault: llmtest.Status(425, "too early")},
		"429":               {fault: llmtest.RateLimited(0)},
		"500":               {fault: llmtest.Status(500, "boom")},
		"502 from a proxy":  {fault: llmtest.BadGateway()},
		"503 while loading": {fault: llmtest.Status(503, "Loading model")},
		"529":               {fault: llmtest.Status(529, "overloaded")},
		"throttled in tokens": {fault: llmtest.Status(503,
			"ThrottlingException: Too many tokens, please wait before trying again")},
		"hang-up":                {fault: llmtest.Hangup()},
		"half an answer":         {fault: llmtest.Disconnect(half)},
		"half a stream":          {fault: llmtest.Disconnect(half), streamed: true},
		"broken JSON":            {fault: llmtest.Malformed()},
		"no choices":             {fault: llmtest.NoChoices()},
		"no choices in a stream": {fault: llmtest.NoChoices(), streamed: true},
		"error in a stream":      {fault: llmtest.StreamError(half, 500, "EngineCore died"), streamed: true},
		"error inside a 200":     {fault: llmtest.StreamError(half, 500, "EngineCore died")},
		"flat error in a stream": {fault: llmtest.Body(200, "text/event-stream",
			`data: {"object":"error","message":"x","code":500}`+"\n\n"), streamed: true},
		"aborted for new weights": {fault: llmtest.Reply{Content: "ha", FinishReason: "abort"}},
		"nothing":                 {fault: llmtest.Body(200, "application/json", "")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fake := llmtest.New(tt.fault, llmtest.Text("all of it"))
			var w waits
			r := ask("x")
			var watched strings.Builder
			if tt.streamed {
				r.OnText = func(s string) { watched.WriteString(s) }
			}
			c := dial(t, fake, llm.Options{})
			c.SetSleep(w.sleep)
			got, err := c.Complete(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if got.Message.Content != "all of it" || len(fake.Requests()) != 2 || len(w) != 1 || w[0] > 500*time.Millisecond {
				t.Errorf("got %q after %d requests and pauses %v", got.Message.Content, len(fake.Requests()), w)
			}
			if s := watched.String(); tt.streamed && !strings.HasSuffix(s, "all of it") {
				t.Errorf("watched %q", s)
			}
		})
	}
}

func TestFailuresThatStayAreNotRetried(t *testing.T) {
	tests := map[string]struct {
		fault   llmtest.Reply
		options llm.Options
		want    string // in the message
	}{
		"400": {llmtest.Status(400, "bad request: x"), llm.Options{},
			"status 400 Bad Request: bad request: x"},
		"401": {llmtest.Status(401, "no"), llm.Options{}, "set OPENAI_API_KEY"},
		"401 with key": {llmtest.Status(401, "bad key sk-secret-1"), llm.Options{APIKey: "sk-secret-1"},
			"bad key [key]; the endpoint refuses the key"},
		"403": {llmtest.Status(403, "not yours"), llm.Options{}, "not yours; the key may not use this model"},
		"404": {llmtest.Status(404, "no such model"), llm.Options{Model: "other"},
			"set --model to one that the endpoint serves: test-model"},
		"501":  {llmtest.Status(501, "not supported"), llm.Options{}, "501 Not Implemented"},
		"flat": {flat(400, "flat words"), llm.Options{}, "flat words"},
		"FastAPI": {llmtest.Body(422, "application/json", `{"detail":[{"loc":["body","n"],"msg":"bad n"}]}`),
			llm.Options{}, `"msg":"bad n"`},
		"web page": {llmtest.Body(200, "text/html",
			"<!doctype html><html><head><title>Welcome</title></head></html>"), llm.Options{},
			"a web page, “Welcome” instead of a completion: check --base-url"},
		"moved": {llmtest.Body(308, "text/plain", "", "Location", "https://elsewhere/v1/chat/completions"),
			llm.Options{}, "set --base-url to that address"},
		"out of credit": {llmtest.Body(429, "application/json",
			`{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`), llm.Options{},
			"no credit left"},
		"error inside a 200": {llmtest.StreamError(llmtest.Text(""), 400, "bad schema"), llm.Options{}, "bad schema"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fake := llmtest.New(tt.fault)
			_, err := dial(t, fake, tt.options).Complete(t.Context(), ask("x"))
			if !errors.Is(err, agent.ErrModelUnavailable) || errors.Is(err, agent.ErrContextOverflow) ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
			if n := len(fake.Requests()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestToolsUnsupportedIsRecognisedAndNotRetried(t *testing.T) {
	tests := map[string]llmtest.Reply{
		"vLLM": llmtest.Status(400,
			`"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`),
		"llama.cpp": llmtest.Status(500, "tools param requires --jinja flag"),
		"Ollama":    llmtest.Status(400, "registry.ollama.ai/library/gemma:2b does not support tools"),
		"OpenRouter": llmtest.Status(404,
			"No endpoints found that support tool use. To learn more about provider routing, visit"),
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			fake := llmtest.New(fault)
			_, err := dial(t, fake, llm.Options{}).Complete(t.Context(), ask("x"))
			if !errors.Is(err, agent.ErrToolsUnsupported) || !errors.Is(err, agent.ErrModelUnavailable) ||
				len(fake.Requests()) != 1 || !strings.Contains(err.Error(), "or use --format xml") {
				t.Errorf("after %d requests: %v", len(fake.Requests()), err)
			}
		})
	}
}

// A reply from which the server could not read calls is the model's fault, so it goes to the agent, which tells the
// model.
func TestMisreadRepliesAreReplies(t *testing.T) {
	const llama = "The model produced output that does not match the expected peg-native format"
	tests := map[string]struct {
		fault    llmtest.Reply
		streamed bool
		want     string
	}{
		"llama.cpp":         {llmtest.Status(500, llama), false, ""},
		"llama.cpp, stream": {llmtest.StreamError(llmtest.Text("fourteen runes"), 500, llama), true, "fourteen"},
		"Ollama": {llmtest.Status(500,
			`error parsing tool call: raw='{"cmd": "ls', err=unexpected end of JSON input`), false, `{"cmd": "ls`},
		"Groq": {llmtest.Body(400, "application/json",
			`{"error":{"message":"Failed to call a function. Please adjust your prompt. See 'failed_generation' `+
				`for more details.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"<function=ls>{</function>"}}`), false, "<function=ls>{</function>"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fake := llmtest.New(tt.fault)
			r := ask("x")
			if tt.streamed {
				r.OnText = func(string) {}
			}
			got, err := dial(t, fake, llm.Options{}).Complete(t.Context(), r)
			if err != nil || len(fake.Requests()) != 1 {
				t.Fatalf("after %d requests: %v", len(fake.Requests()), err)
			}
			if got.FinishReason != llm.FinishMisread || !strings.HasPrefix(got.Message.Content, tt.want) ||
				got.Message.Role != agent.RoleAssistant {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestOverflowIsRecognisedAndNotRetried(t *testing.T) {
	for server, fault := range overflows() {
		t.Run(server, func(t *testing.T) {
			fake := llmtest.New(fault)
			_, err := dial(t, fake, llm.Options{}).Complete(t.Context(), ask("x"))
			if !errors.Is(err, agent.ErrContextOverflow) || errors.Is(err, agent.ErrModelUnavailable) ||
				len(fake.Requests()) != 1 {
				t.Errorf("after %d requests: %v", len(fake.Requests()), err)
			}
		})
	}
	t.Run("in a stream", func(t *testing.T) {
		fake := llmtest.New(llmtest.StreamError(llmtest.Text("x"), 400, "the request exceeds the available context size"))
		r := ask("x")
		r.OnText = func(string) {}
		_, err := dial(t, fake, llm.Options{}).Complete(t.Context(), r)
		if !errors.Is(err, agent.ErrContextOverflow) || len(fake.Requests()) != 1 {
			t.Error(err)
		}
	})
	t.Run("by the fake's own count", func(t *testing.T) {
		fake := llmtest.New(llmtest.Text("never"))
		fake.Models = []llmtest.Model{{ID: "small", Context: 100}}
		_, err := dial(t, fake, llm.Options{}).Complete(t.Context(), ask(strings.Repeat("long ", 100)))
		if !errors.Is(err, agent.ErrContextOverflow) {
			t.Error(err)
		}
	})
}

func TestRetryAfterIsHonouredAndCapped(t *testing.T) {
	soon := time.Now().Add(20 * time.Second)
	tests := map[string]struct {
		fault    llmtest.Reply
		from, to time.Duration
	}{
		"seconds": {llmtest.RateLimited(3 * time.Second), 3 * time.Second, 4 * time.Second},
		"milliseconds": {llmtest.Body(429, "application/json", "{}", "Retry-After-Ms", "1500"), 1500 * time.Millisecond,
			2 * time.Second},
		"a date":      {rateLimitedUntil(soon), 17 * time.Second, 21 * time.Second},
		"an hour":     {llmtest.RateLimited(time.Hour), 2 * time.Minute, 2 * time.Minute},
		"a past date": {rateLimitedUntil(soon.Add(-time.Hour)), 0, 500 * time.Millisecond},
		"nonsense":    {llmtest.Body(503, "text/plain", "", "Retry-After", "soon"), 0, 500 * time.Millisecond},
		"less than 0": {llmtest.Body(503, "text/plain", "", "Retry-After", "-7"), 0, 500 * time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var w waits
			c := dial(t, llmtest.New(tt.fault, llmtest.Text("ok")), llm.Options{})
			c.SetSleep(w.sleep)
			if _, err := c.Complete(t.Context(), ask("x")); err != nil {
				t.Fatal(err)
			}
			if len(w) != 1 || w[0] < tt.from || w[0] > tt.to {
				t.Errorf("paused %v, want %s to %s", w, tt.from, tt.to)
			}
		})
	}
}

// A client with few retries can ask another server, so it does not wait long for one that asks for much more time.
func TestRetryAfterIsShortForFewRetries(t *testing.T) {
	var w waits
	c := dial(t, llmtest.New(llmtest.RateLimited(time.Hour), llmtest.Text("ok")), llm.Options{MaxRetries: 2})
	c.SetSleep(w.sleep)
	if _, err := c.Complete(t.Context(), ask("x")); err != nil {
		t.Fatal(err)
	}
	if len(w) != 1 || w[0] > 3*time.Second {
		t.Errorf("paused %v", w)
	}
}

// The key and the conversation are sent only to the endpoint that they are meant for.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		var reached atomic.Bool
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
		t.Cleanup(other.Close)
		c := dial(t, http.RedirectHandler(other.URL, status), llm.Options{APIKey: "sk-hidden", MaxRetries: 1})
		if _, err := c.Complete(t.Context(), ask("x")); err == nil || reached.Load() {
			t.Errorf("%d: %v; the other host was reached: %v", status, err, reached.Load())
		}
	}
}

func TestRetriesEndAndTheErrorTellsAll(t *testing.T) {
	fake := &llmtest.Server{Key: "sk-hidden", Answer: func(llmtest.Request) llmtest.Reply {
		return llmtest.Status(503, "engine sk-hidden is loading")
	}}
	var w waits
	var logged strings.Builder
	c := dial(t, fake, llm.Options{APIKey: "sk-hidden", MaxRetries: 3, Log: slog.New(slog.NewTextHandler(&logged, nil))})
	c.SetSleep(w.sleep)
	_, err := c.Complete(t.Context(), ask("x"))
	want := fmt.Sprintf("model endpoint %s: status 503 Service Unavailable: engine [key] is loading (after 4 attempts)",
		c.Endpoint())
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	failed, ok := errors.AsType[*llm.Error](err)
	if !ok || failed.Status != 503 || failed.Attempts != 4 || len(w) != 3 {
		t.Errorf("got %+v after %v", failed, w)
	}
	for i, d := range w {
		if d > 500*time.Millisecond<<i {
			t.Errorf("pause %d took %s", i, d)
		}
	}
	if n := strings.Count(logged.String(), "trying again"); n != 3 ||
		strings.Contains(logged.String()+err.Error(), "sk-hidden") {
		t.Errorf("log:\n%s", logged.String())
	}
}

func TestNobodyIsThere(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	var w waits
	c, err := llm.New(llm.Options{BaseURL: "http://key:hunter2@" + srv.Listener.Addr().String(), Model: "m",
		MaxRetries: 2})
	if err != nil {
		t.Fatal(err)
	}
	c.SetSleep(w.sleep)
	_, err = c.Complete(t.Context(), ask("x"))
	if !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(),
		"connection refused; is the server running") || len(w) != 2 {
		t.Errorf("after %v: %v", w, err)
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("the password is in the error")
	}
}

// What comes last in a stream without an end mark decides whether it is complete.
func TestStreamsWithoutAnEndMark(t *testing.T) {
	const text, finish = `data: {"choices":[{"delta":{"content":"text"}}]}` + "\n\n",
		`data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	tests := map[string]struct {
		body string
		want string
	}{
		"finished":           {text + finish, "text"},
		"finished, then cut": {text + finish + `data: {"usa`, "text"},
		"cut":                {text, "again"},
		"a mark is enough":   {text + "data: [DONE]", "text"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fake := llmtest.New(llmtest.Body(200, "text/event-stream", tt.body), llmtest.Text("again"))
			r := ask("x")
			r.OnText = func(string) {}
			got, err := dial(t, fake, llm.Options{}).Complete(t.Context(), r)
			if err != nil || got.Message.Content != tt.want {
				t.Errorf("got %q, %v", got.Message.Content, err)
			}
		})
	}
}

func TestWrongSchemes(t *testing.T) {
	quiet := log.New(io.Discard, "", 0)
	secure := httptest.NewUnstartedServer(llmtest.New())
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(llmtest.New())
	defer plain.Close()
	tests := map[string]string{
		secure.URL: "certificate is not trusted here",
		strings.Replace(plain.URL, "http:", "https:", 1): "use http:// in --base-url",
	}
	for url, want := range tests {
		var w waits
		c, err := llm.New(llm.Options{BaseURL: url, Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		c.SetSleep(w.sleep)
		if _, err := c.Complete(t.Context(), ask("x")); err == nil || !strings.Contains(err.Error(), want) || len(w) != 0 {
			t.Errorf("%s: %v", url, err)
		}
		c.CloseIdleConnections()
	}
}

// The timeouts are about silence, so these tests run in fake time over a connection without a network.
func TestSilence(t *testing.T) {
	onText := func(string) {}
	slow := llmtest.Text("slow")
	slow.Wait = 4 * time.Minute
	tests := map[string]struct {
		script  []llmtest.Reply
		onText  func(string)
		want    string
		took    time.Duration // at least; pauses are added
		retried int
	}{
		"a slow first byte is waited for": {[]llmtest.Reply{slow}, onText, "slow", 4 * time.Minute, 0},
		"no first byte": {[]llmtest.Reply{silent(), llmtest.Text("then")}, onText, "then", 5 * time.Minute,
			1},
		"a stalled stream": {[]llmtest.Reply{llmtest.Stall(slow), llmtest.Text("then")}, onText, "then",
			5 * time.Minute, 1},
		"a whole answer may take longer": {[]llmtest.Reply{{Content: "long", Wait: 29 * time.Minute}}, nil, "long",
			29 * time.Minute, 0},
		"and has its own limit": {[]llmtest.Reply{silent(), llmtest.Text("then")}, nil, "then", 30 * time.Minute,
			1},
		"silence is retried twice at most": {[]llmtest.Reply{silent(), silent(), silent(), llmtest.Text("late")}, onText,
			"error", 15 * time.Minute, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := llmtest.New(tt.script...)
				c, err := llm.New(llm.Options{BaseURL: "http://fake", Model: "test-model", Transport: inMemory(fake)})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				r := ask("x")
				r.OnText = tt.onText
				got, err := c.Complete(t.Context(), r)
				if tt.want == "error" {
					if !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(),
						"no answer in time: silent for 5m0s") {
						t.Errorf("got %v", err)
					}
				} else if err != nil || got.Message.Content != tt.want {
					t.Errorf("got %q, %v", got.Message.Content, err)
				}
				if took := time.Since(start); took < tt.took || took > tt.took+5*time.Second {
					t.Errorf("took %s", took)
				}
				if n := len(fake.Requests()); n != tt.retried+1 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

func TestCancelEndsEveryWait(t *testing.T) {
	tests := map[string]struct {
		reply  llmtest.Reply
		onText bool
	}{
		"before the first byte": {reply: silent()},
		"inside a stream":       {reply: llmtest.Stall(llmtest.Text("some text")), onText: true},
		"between attempts":      {reply: llmtest.RateLimited(time.Minute)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := llmtest.New(tt.reply)
				c, err := llm.New(llm.Options{BaseURL: "http://fake", Model: "test-model", Transport: inMemory(fake)})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				r := ask("x")
				if tt.onText {
					r.OnText = func(string) {}
				}
				_, err = c.Complete(ctx, r)
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, agent.ErrModelUnavailable) ||
					time.Since(start) != 10*time.Second {
					t.Errorf("after %s: %v", time.Since(start), err)
				}
				if n := len(fake.Requests()); n != 1 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}
