package llm_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/env/testkit"
)

// endless writes a beginning, and then the same piece until the client disconnects.
func endless(contentType, beginning, piece string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, err := io.WriteString(w, beginning)
		for err == nil {
			_, err = io.WriteString(w, piece)
		}
	}
}

// exploding answers with a small body that decompresses to a large one.
func exploding(t *testing.T) http.HandlerFunc {
	var small bytes.Buffer
	w := gzip.NewWriter(&small)
	zeros := make([]byte, 1<<20)
	for range 20 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(small.Bytes())
	}
}

// An endless answer is cut off early, reported as such, and not requested again.
func TestEndlessAnswers(t *testing.T) {
	t.Parallel()
	letters := strings.Repeat("x", 1<<16)
	const chunk = `{"choices":[{"delta":{"content":"`
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		stream bool
		says   string
		large  bool
	}{
		"whole":          {answer: endless("application/json", `{"choices":[{"message":{"content":"`, letters), says: "16 MiB"},
		"exploding":      {answer: exploding(t), says: "16 MiB"},
		"stream of text": {endless("text/event-stream", "", "data: "+chunk+letters+`"}}]}`+"\n\n"), true, "16 MiB", true},
		"stream of calls": {endless("text/event-stream", "",
			`data: {"choices":[{"delta":{"tool_calls":[{"id":"`+letters+`"}]}}]}`+"\n\n"), true, "16 MiB", true},
		"one line":        {endless("text/event-stream", "data: "+chunk, letters), true, "4 MiB", false},
		"nothing but air": {endless("text/event-stream", "", ":"+letters+"\n"), true, "256 MiB", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.large {
				testkit.SkipUnderRace(t)
			}
			var asked atomic.Int32
			client := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				c.answer(w, r)
			}), llm.Options{Model: "m"})
			r := ask("hello")
			if c.stream {
				r.OnText = func(string) {}
			}
			_, err := client.Complete(t.Context(), r)
			if !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error = %v, want one about %s", err, c.says)
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("asked %d times, want once", n)
			}
		})
	}
}

// The body of an error status is read only as far as an explanation may be long.
func TestEndlessRefusal(t *testing.T) {
	t.Parallel()
	client := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		endless("text/plain", "no", strings.Repeat("x", 1<<16))(w, r)
	}), llm.Options{Model: "m"})
	if _, err := client.Complete(t.Context(), ask("hello")); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("error = %v", err)
	}
}
