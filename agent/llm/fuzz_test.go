package llm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"deepswe/agent"
)

// Whatever an endpoint sends is an answer or an error.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"choices":[{"message":{"content":[{"text":"a"}],"tool_calls":[{"function":{"arguments":{"a":1}}}]},"token_ids":[1],"logprobs":{"content":[{"logprob":-1}]}}],"prompt_token_ids":[1]}`))
	f.Add([]byte(`{"error":{"message":["x"]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := New(Options{BaseURL: "http://fake"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(raw)
		if err != nil || got.usable() != nil {
			return
		}
		reply, err := got.reply(agent.Request{Tokens: true}, c.o.Log)
		if err == nil && reply.Tokens != nil && len(reply.Tokens.Logprobs) != len(reply.Tokens.CompletionIDs) {
			t.Error("ids without logprobs")
		}
	})
}

// The data lines of a stream arrive whole and alone, however the bytes are cut.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(": ping\n\ndata: {\"error\": null}\r\n\r\ndata: {}\n\nevent: x\ndata:[DONE]\n\n"), 3)
	f.Add([]byte("data: {\"error\":{\"message\":\"x\"}}\n\n"), 1)
	f.Fuzz(func(t *testing.T, raw []byte, size int) {
		size = max(1, size%64)
		e := newEvents(io.NopCloser(nil), bufio.NewReader(bytes.NewReader(raw)), func() {})
		var out strings.Builder
		buf := make([]byte, size)
		for {
			n, err := e.Read(buf)
			out.Write(buf[:n])
			if err != nil {
				break
			}
		}
		for line := range strings.Lines(out.String()) {
			if !strings.HasPrefix(line, "data: ") || !strings.HasSuffix(line, "\n") || strings.HasPrefix(line, `data: {"error":`) {
				t.Errorf("line %q", line)
			}
		}
	})
}

func FuzzParseServerError(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"x","code":400,"param":null}}`))
	f.Add([]byte(`[{"error":{"message":"x","status":"INVALID"}}]`))
	f.Add([]byte("<html><title>502</title></html>"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := parseServerError(raw)
		if !utf8.ValidString(s.Message) || utf8.RuneCountInString(s.Message) > maxSaid+30 || strings.Contains(s.Message, "\n") {
			t.Errorf("message %q", s.Message)
		}
		isOverflow(400, s)
		refusedMember(s)
	})
}

// Taking escapes away changes how a text is written, never the text.
func FuzzUnescape(f *testing.F) {
	f.Add("a < b && c > d \\u003c \\\\u003e \u2028")
	f.Fuzz(func(t *testing.T, text string) {
		escaped, err := json.Marshal(text)
		if err != nil {
			t.Skip()
		}
		var want, got string
		if err := json.Unmarshal(escaped, &want); err != nil {
			t.Fatal(err)
		}
		plain := unescape(escaped)
		if err := json.Unmarshal(plain, &got); err != nil || got != want {
			t.Errorf("%q became %q: %v", escaped, plain, err)
		}
		if strings.Count(string(plain), "<") != strings.Count(want, "<") {
			t.Errorf("%q kept an escape", plain)
		}
	})
}
