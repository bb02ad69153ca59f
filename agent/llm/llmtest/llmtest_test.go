package llmtest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"deepswe/agent/llm/llmtest"
)

func post(t testing.TB, h http.Handler, body string) (status int, answer string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://fake/v1/chat/completions",
		strings.NewReader(body))
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec.Code, rec.Body.String()
}

// A script answers in order. A function can answer according to the request.
func ExampleServer() {
	fake := &llmtest.Server{Answer: func(r llmtest.Request) llmtest.Reply {
		if strings.Contains(r.Last(), "tests pass") {
			return llmtest.UseTool("finish", map[string]string{"command": "submit"})
		}
		return llmtest.UseTool("execute_bash", map[string]string{"cmd": "go test ./..."})
	}}
	srv := httptest.NewServer(fake)
	defer srv.Close()
	body := `{"model":"test-model","messages":[{"role":"user","content":"the tests pass now"}]}`
	resp, err := http.Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	fmt.Println(strings.Contains(string(raw), `"name":"finish"`), err, len(fake.Requests()))
	// Output: true <nil> 1
}

// The fake refuses what vLLM refuses, so that tests find such requests before users do.
func TestRequestsThatAreRefused(t *testing.T) {
	tests := map[string]struct {
		body   string
		status int
		want   string
	}{
		"no JSON":       {`{`, 400, "body is not JSON"},
		"unknown model": {`{"model":"x","messages":[{"role":"user","content":"x"}]}`, 404, "The model `x` does not exist"},
		"no messages":   {`{"model":"test-model"}`, 400, "at least 1 item"},
		"no content": {`{"model":"test-model","messages":[{"role":"user"}]}`, 400,
			"messages.0.content: Field required"},
		"unknown role": {`{"model":"test-model","messages":[{"role":"robot","content":"x"}]}`, 400,
			"Unexpected message role"},
		"answer to nobody": {`{"model":"test-model","messages":[{"role":"tool","content":"x","tool_call_id":"a"}]}`, 400,
			"answers no call"},
		"broken arguments": {`{"model":"test-model","messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]}]}`, 400, "not a JSON object"},
		"end of script": {`{"model":"test-model","messages":[{"role":"user","content":""}]}`, 400,
			"the script has no further reply"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if status, answer := post(t, llmtest.New(), tt.body); status != tt.status || !strings.Contains(answer, tt.want) {
				t.Errorf("%d %s", status, answer)
			}
		})
	}
}

func TestMaxTokensCutsTheAnswer(t *testing.T) {
	status, answer := post(t, llmtest.New(llmtest.Text("abcdefghi")),
		`{"model":"test-model","max_tokens":2,"messages":[{"role":"user","content":"x"}]}`)
	if status != http.StatusOK || !strings.Contains(answer, `"content":"abcdef"`) ||
		!strings.Contains(answer, `"finish_reason":"length"`) {
		t.Errorf("%d %s", status, answer)
	}
}

func TestTokensReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))
		ids := llmtest.Tokenize(text)
		if got := llmtest.Detokenize(ids); got != text {
			t.Errorf("%q became %q", text, got)
		}
		if len(ids) != (len(text)+2)/3 {
			t.Errorf("%d ids for %d bytes", len(ids), len(text))
		}
	})
}
