package llm

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"deepswe/agent"
)

// Whatever an endpoint sends is read as an answer or an error.
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

// cut reads at most size bytes at a time.
type cut struct {
	r    io.Reader
	size int
}

func (c cut) Read(p []byte) (int, error) { return c.r.Read(p[:min(len(p), c.size)]) }

// The events of a stream arrive complete and one at a time, however the bytes are split.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(": ping\n\ndata: {\"error\": null}\r\n\r\ndata: {}\n\nevent: x\ndata:[DONE]\n\n"), 3)
	f.Add([]byte("data: {\"error\":{\"message\":\"x\"}}\n\n"), 1)
	f.Fuzz(func(t *testing.T, raw []byte, size int) {
		read := func(r io.Reader) (all []string, err error) {
			e := &events{in: bufio.NewReader(r), alive: func() {}, left: maxStream}
			for {
				data, err := e.nextEvent()
				if err != nil {
					return all, err
				}
				if len(bytes.TrimSpace(data)) != len(data) || len(data) == 0 || bytes.ContainsRune(data, '\n') || isError(data) {
					t.Errorf("event %q", data)
				}
				all = append(all, string(data))
			}
		}
		whole, wantErr := read(bytes.NewReader(raw))
		pieces, err := read(cut{bytes.NewReader(raw), max(1, size%64)})
		if !slices.Equal(whole, pieces) || err.Error() != wantErr.Error() {
			t.Errorf("cut in pieces: %q, %v; whole: %q, %v", pieces, err, whole, wantErr)
		}
	})
}

func FuzzParseServerError(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"x","code":400,"param":null}}`))
	f.Add([]byte(`[{"error":{"message":"x","status":"INVALID"}}]`))
	f.Add([]byte("<html><title>502</title></html>"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := parseServerError(raw)
		if !utf8.ValidString(s.Message) || utf8.RuneCountInString(s.Message) > maxSaid+30 ||
			strings.Contains(s.Message, "\n") {
			t.Errorf("message %q", s.Message)
		}
		isOverflow(400, s)
		refusedMember(s)
	})
}
