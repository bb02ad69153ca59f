package foreign

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/agent/llm/llmtest"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/testkit"
)

const testKey = "sk-test"

// client sends requests to a gateway over HTTP.
type client struct {
	*testing.T
	url string
	key string
}

func serve(t *testing.T, g *gateway) client {
	t.Helper()
	s := httptest.NewServer(g.handler(testKey))
	t.Cleanup(s.Close)
	return client{t, s.URL, testKey}
}

// post returns the status and the body of the answer.
func (c client) post(path, body string) (int, string) {
	c.Helper()
	status, answer, err := c.ask(c.Context(), path, body)
	if err != nil {
		c.Fatal(err)
	}
	return status, answer
}

func (c client) ask(ctx context.Context, path, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

// asks are the same question in each dialect.
var asks = []struct{ name, path, body string }{
	{"chat", "/v1/chat/completions",
		`{"messages":[{"role":"user","content":"look"}],"tools":[{"type":"function","function":{"name":"bash",
		"parameters":{}}}],"stream":%v,"stream_options":{"include_usage":true}}`},
	{"messages", "/v1/messages?beta=true",
		`{"messages":[{"role":"user","content":[{"type":"text","text":"look"}]}],"max_tokens":99,"stream":%v,
		"tools":[{"name":"bash","input_schema":{}},{"type":"web_search_20250305","name":"web_search"}]}`},
	{"responses", "/v1/responses",
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"look"}]}],"stream":%v,
		"tools":[{"type":"namespace","name":"team","tools":[{"type":"function","name":"ask","parameters":{}}]},
		{"type":"custom","name":"patch"},{"type":"web_search"}]}`},
}

// The golden files show the answers in each dialect, streamed and whole.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, ask := range asks {
		for _, streamed := range []bool{false, true} {
			model := &fake{reply: func(agent.Request) (agent.Reply, error) {
				m := agent.Message{Content: "I look.", Reasoning: "What is there?", ToolCalls: []agent.ToolCall{
					{Name: "bash", Arguments: `{"command": "ls"}`},
				}}
				if ask.name == "responses" {
					m.ToolCalls = []agent.ToolCall{
						{Name: "team__ask", Arguments: `{"who":"b"}`}, {Name: "patch", Arguments: `{"input":"*** Begin"}`},
					}
				}
				return agent.Reply{Message: m}, nil
			}}
			g := newGateway(t, model, agent.Limits{})
			status, body := serve(t, g).post(ask.path, fmt.Sprintf(ask.body, streamed))
			if status != http.StatusOK {
				t.Errorf("%s: status %d: %s", ask.name, status, body)
			}
			name := ask.name + ".json"
			if streamed {
				name = ask.name + ".sse"
			}
			testkit.Golden(t, "testdata/"+name, body)
		}
	}
}

// A function whose own name looks like one with a namespace keeps its name.
func TestUnderscoresInNames(t *testing.T) {
	t.Parallel()
	model := &fake{reply: func(agent.Request) (agent.Reply, error) {
		return agent.Reply{Message: agent.Message{ToolCalls: []agent.ToolCall{{Name: "mcp__git__log", Arguments: "{}"}}}}, nil
	}}
	_, body := serve(t, newGateway(t, model, agent.Limits{})).post("/v1/responses",
		`{"input":"look","tools":[{"type":"function","name":"mcp__git__log","parameters":{}}]}`)
	if !strings.Contains(body, `"name":"mcp__git__log"`) || strings.Contains(body, "namespace") {
		t.Error(body)
	}
}

// A refusal uses the words that agents know how to handle. If the agent then gives up, the rollout ends with the
// fitting reason.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		err    error
		limits agent.Limits
		status int
		words  [3]string // in each dialect
		stop   agent.StopReason
	}{
		{"context", agent.ErrContextOverflow, agent.Limits{Context: 99000}, 400,
			[3]string{"context_length_exceeded", "prompt is too long: 99001 tokens > 99000 maximum", "context_length_exceeded"},
			agent.MaxContext},
		{"own context", nil, agent.Limits{Context: 1}, 400,
			[3]string{"context_length_exceeded", "prompt is too long", "context_length_exceeded"}, agent.MaxContext},
		{"endpoint", agent.ErrModelUnavailable, agent.Limits{}, 503, [3]string{"server_error", "api_error", "server_error"},
			agent.ModelError},
	} {
		for i, ask := range asks {
			g := newGateway(t, &fake{reply: func(agent.Request) (agent.Reply, error) { return agent.Reply{}, c.err }}, c.limits)
			status, body := serve(t, g).post(ask.path, fmt.Sprintf(ask.body, true))
			want := c.status
			if ask.name == "responses" && c.stop == agent.MaxContext {
				want = http.StatusOK // the error is in the stream
			}
			if status != want || !strings.Contains(body, c.words[i]) {
				t.Errorf("%s, %s: status %d: %s", c.name, ask.name, status, body)
			}
			if stop, _ := g.stop(t.Context(), env.Result{}, nil); stop != c.stop {
				t.Errorf("%s, %s: the rollout ends with %s", c.name, ask.name, stop)
			}
		}
	}
}

// Calls beyond the limit are refused, and an agent that keeps asking is ended.
func TestFlood(t *testing.T) {
	t.Parallel()
	model := counting()
	g := newGateway(t, model, agent.Limits{Steps: 2})
	c := serve(t, g)
	for i := range 2*mostRefusals + 2 {
		status, body := c.post("/v1/chat/completions", chatBody(fmt.Sprint("question ", i)))
		if (i < 2) != (status == http.StatusOK) {
			t.Fatalf("call %d: status %d: %s", i, status, body)
		}
	}
	if g.life.Err() == nil || len(model.requests()) != 2 {
		t.Errorf("%d calls of the model, and the agent goes on: %v", len(model.requests()), g.life.Err() == nil)
	}
	if stop, err := g.stop(t.Context(), env.Result{}, context.Canceled); stop != agent.MaxSteps || err != nil {
		t.Errorf("it ends with %s (%v)", stop, err)
	}
}

// An agent that repeats the same question gets the same answer for a while. Then it is refused, and in the end it is
// ended.
func TestSameQuestionForever(t *testing.T) {
	t.Parallel()
	model := counting()
	g := newGateway(t, model, agent.Limits{})
	c := serve(t, g)
	for i := range 2*mostRefusals + 2 {
		status, body := c.post("/v1/chat/completions", chatBody("hello?"))
		if (i <= mostRefusals) != (status == http.StatusOK) {
			t.Fatalf("question %d: status %d: %s", i, status, body)
		}
	}
	if g.life.Err() == nil || len(model.requests()) != 1 {
		t.Errorf("%d calls of the model, and the agent goes on: %v", len(model.requests()), g.life.Err() == nil)
	}
	if stop, err := g.stop(t.Context(), env.Result{}, context.Canceled); stop != agent.Stuck || err != nil {
		t.Errorf("it ends with %s (%v)", stop, err)
	}
}

// 128 agents ask at the same time, each everything twice. Each gets its own answers, and has one row.
func TestManyAgents(t *testing.T) {
	t.Parallel()
	var work sync.WaitGroup
	for n := range 128 {
		g := newGateway(t, counting(), agent.Limits{})
		c := serve(t, g)
		work.Go(func() {
			said := fmt.Sprintf(`{"role":"user","content":"%s %d"}`, statement, n)
			for turn := range 3 {
				var answers [2]string
				var both sync.WaitGroup
				for i := range answers {
					both.Go(func() {
						var err error
						_, answers[i], err = c.ask(t.Context(), "/v1/chat/completions", `{"messages":[`+said+`]}`)
						if err != nil {
							t.Error(err)
						}
					})
				}
				both.Wait()
				want := fmt.Sprintf("reply number %d, which is long enough to be known again", turn+1)
				if !strings.Contains(answers[0], want) || answers[1] != answers[0] {
					t.Errorf("agent %d, turn %d: %q", n, turn, answers)
				}
				said += fmt.Sprintf(`,{"role":"assistant","content":%q},{"role":"user","content":"go on"}`, want)
			}
			g.work.Wait()
			if len(g.tree.chains) != 1 || g.calls != 3 || g.again != 3 {
				t.Errorf("agent %d: %d chains, %d calls, %d again", n, len(g.tree.chains), g.calls, g.again)
			}
		})
	}
	work.Wait()
}

// A request that fails on the way to the model is repeated until it is answered. It counts as one call, and is trained
// on once.
func TestFaultsOfTheEndpoint(t *testing.T) {
	t.Parallel()
	cut := llmtest.Text("a reply that is cut off")
	endpoint := &llmtest.Server{TakesTokens: true}
	faults := []llmtest.Reply{
		llmtest.Status(http.StatusInternalServerError, "out of luck"), llmtest.RateLimited(time.Millisecond),
		llmtest.Disconnect(cut), llmtest.Hangup(), llmtest.BadGateway(), llmtest.Malformed(),
	}
	var mu sync.Mutex
	tries := 0
	endpoint.Answer = func(r llmtest.Request) llmtest.Reply {
		mu.Lock()
		defer mu.Unlock()
		tries++
		if tries%2 == 1 && tries/2 < len(faults) {
			return faults[tries/2]
		}
		return llmtest.Text(fmt.Sprintf("reply number %d", tries))
	}
	server := httptest.NewServer(endpoint)
	defer server.Close()
	for _, mode := range []llm.Continuation{llm.Extend, llm.Template} {
		tries = 0
		model, err := llm.New(llm.Options{BaseURL: server.URL, Continue: mode})
		if err != nil {
			t.Fatal(err)
		}
		g := newGateway(t, model, agent.Limits{Steps: len(faults)})
		said := []string{statement}
		for range faults {
			said = append(said, talk(t, g, true, said...), "go on")
		}
		rec := finished(t, g)
		samples, ok := rec.Samples()
		if !ok || len(samples) != len(faults) || g.calls != len(faults) || len(rec.Stop.Chains) != 1 {
			t.Fatalf("%d samples (%v), %d calls, %d chains", len(samples), ok, g.calls, len(rec.Stop.Chains))
		}
		for i, s := range samples {
			if got := llmtest.Detokenize(s.CompletionIDs); !strings.Contains(got, fmt.Sprint("reply number ", 2*i+2)) {
				t.Errorf("sample %d is %q", i, got)
			}
		}
	}
}

// A command of the model that finds the port does not know the key.
func TestStrangers(t *testing.T) {
	t.Parallel()
	g := newGateway(t, counting(), agent.Limits{})
	c := serve(t, g)
	c.key = "sk-other"
	for _, ask := range asks {
		if status, body := c.post(ask.path, fmt.Sprintf(ask.body, false)); status != http.StatusUnauthorized {
			t.Errorf("%s: status %d: %s", ask.name, status, body)
		}
	}
	if g.strange != 3 || g.calls != 0 {
		t.Errorf("%d strange requests, %d calls", g.strange, g.calls)
	}
}

func chatBody(question string) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"tools":[{"type":"function","function":{"name":"b"}}]}`,
		statement+" "+question)
}

// A repeated request gets the answer that exists or is under way, which is trained on once.
func TestRetries(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}, 9), make(chan struct{})
	model := counting()
	next := model.reply
	model.reply = func(r agent.Request) (agent.Reply, error) {
		asked <- struct{}{}
		<-release
		return next(r)
	}
	g := newGateway(t, model, agent.Limits{})
	c := serve(t, g)
	// The first connection is cut while the model is working.
	ctx, cut := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/chat/completions",
		strings.NewReader(chatBody("one")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", testKey)
	var work sync.WaitGroup
	work.Go(func() {
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			t.Error("a cut connection has an answer")
		}
	})
	<-asked
	cut()
	work.Wait()
	var answers [4]string
	for i := range answers {
		work.Go(func() { _, answers[i] = c.post("/v1/chat/completions", chatBody("one")) })
	}
	close(release)
	work.Wait()
	for _, a := range answers {
		if a != answers[0] || !strings.Contains(a, "reply number 1,") {
			t.Errorf("answers differ: %s", a)
		}
	}
	rec := finished(t, g)
	if samples, ok := rec.Samples(); !ok || len(samples) != 1 || len(model.requests()) != 1 {
		t.Errorf("%d samples (%v) of %d calls", len(samples), ok, len(model.requests()))
	}
	if rec.Stop.Counts["answered_again"] != 4 {
		t.Errorf("%v", rec.Stop.Counts)
	}
}

// A reply that never reached the agent is kept, but not trained on.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	model := counting()
	g := newGateway(t, model, agent.Limits{})
	r, err := chat{}.read([]byte(chatBody("lost")))
	if err != nil {
		t.Fatal(err)
	}
	if _, reply, refused := g.complete(r); reply == nil || refused != nil {
		t.Fatal(refused)
	}
	rec := finished(t, g)
	if samples, _ := rec.Samples(); len(rec.Turns) != 1 || len(samples) != 0 {
		t.Errorf("%d turns, %d samples", len(rec.Turns), len(samples))
	}
}

// A rollout that is played again after a kill asks the model only for what is not recorded.
func TestPlayedAgain(t *testing.T) {
	t.Parallel()
	first := newGateway(t, counting(), agent.Limits{})
	c := serve(t, first)
	_, before := c.post("/v1/chat/completions", chatBody("one"))
	second := newGateway(t, &fake{reply: func(agent.Request) (agent.Reply, error) {
		return agent.Reply{}, agent.ErrReplayExhausted
	}}, agent.Limits{})
	for _, e := range first.out.Events {
		if e.Kind == trajectory.KindReply {
			second.know(*e.Reply)
		}
	}
	c = serve(t, second)
	if status, again := c.post("/v1/chat/completions", chatBody("one")); status != 200 || again != before {
		t.Errorf("status %d: %s\nwant %s", status, again, before)
	}
	if samples, ok := finished(t, second).Samples(); !ok || len(samples) != 1 {
		t.Errorf("%d samples (%v)", len(samples), ok)
	}
}

// While the model is working, the stream has comments that say so.
func TestSignsOfLife(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	s := &stream{w: w, flush: http.NewResponseController(w), events: true}
	s.beat()
	s.send(event{name: "done", data: map[string]int{"n": 1}})
	if s.err != nil {
		t.Fatal(s.err)
	}
	in := bufio.NewScanner(w.Body)
	var lines []string
	for in.Scan() {
		lines = append(lines, in.Text())
	}
	if got := strings.Join(lines, "|"); got != `: the model is thinking||event: done|data: {"n":1}|` {
		t.Errorf("the stream is %s", got)
	}
}
