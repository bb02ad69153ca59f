package foreign

import (
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"deepswe/agent"
	"deepswe/env/disk"
)

// dialect is an API that agents speak. It only translates.
type dialect interface {
	// read reads a request.
	read(body []byte) (request, error)
	// whole is the answer to a request that asks for no stream; events are its pieces in a stream. The id is unique.
	whole(r request, answer agent.Reply, id string) any
	events(r request, answer agent.Reply, id string) []event
	// refuse is the status and body of a refusal.
	refuse(r *refusal) (status int, body any)
	// broken is the event of a refusal in a stream.
	broken(r *refusal) event
}

// event is one piece of a streamed answer. Data that is a string is sent as it is.
type event struct {
	name string
	data any
}

const (
	// beat is the interval between signs of life to a waiting agent. Most agents give up after minutes.
	beat = 15 * time.Second
	// longestRequest is the maximum size of a request in bytes: a conversation that fills the largest contexts is 8 MB.
	longestRequest = 64 << 20
	readTimeout    = time.Minute
	idleTimeout    = 10 * time.Minute
)

// handler answers the calls of agents that know the key.
func (g *gateway) handler(key string) http.Handler {
	mux := http.NewServeMux()
	post := func(path string, d dialect, answer func(http.ResponseWriter, *http.Request, dialect, request)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			if !knows(r, key) {
				g.mu.Lock()
				g.strange++
				g.mu.Unlock()
				send(w, http.StatusUnauthorized, map[string]any{"error": map[string]string{"message": "wrong key"}})
				return
			}
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestRequest))
			var asked request
			if err == nil {
				asked, err = d.read(body)
			}
			if err != nil {
				status, refused := d.refuse(&refusal{text: err.Error()})
				send(w, status, refused)
				return
			}
			asked.messages = settle(asked.messages)
			answer(w, r, d, asked)
		})
	}
	post("/v1/chat/completions", chat{}, g.serve)
	post("/v1/messages", messages{}, g.serve)
	post("/v1/messages/count_tokens", messages{}, g.countTokens)
	post("/v1/responses", responses{}, g.serve)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		send(w, http.StatusOK, map[string]any{
			"object": "list", "data": []any{map[string]string{"id": modelName, "object": "model", "owned_by": "deepswe"}},
		})
	})
	mux.HandleFunc("GET /{$}", func(http.ResponseWriter, *http.Request) {}) // agents check whether the server is up
	return mux
}

func knows(r *http.Request, key string) bool {
	given := cmp.Or(r.Header.Get("X-Api-Key"), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	return subtle.ConstantTimeCompare([]byte(given), []byte(key)) == 1
}

// serve answers one request. While the model thinks, the agent gets signs of life.
func (g *gateway) serve(w http.ResponseWriter, r *http.Request, d dialect, asked request) {
	c := g.beginCall(asked)
	out := &stream{w: w, flush: http.NewResponseController(w), events: asked.stream}
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for waiting := true; waiting; {
		select {
		case <-c.done:
			waiting = false
		case <-r.Context().Done():
			return // a repeated request gets the answer
		case <-ticker.C:
			out.beat()
		}
	}
	if refused, ok := errors.AsType[*refusal](c.err); ok {
		own := *refused
		own.streamed = asked.stream
		out.refuse(d, &own)
		return
	}
	if asked.stream {
		for _, e := range d.events(asked, c.answer, c.prompt()) {
			out.send(e)
		}
	} else {
		out.json(d.whole(asked, c.answer, c.prompt()))
	}
	if out.err == nil && r.Context().Err() == nil {
		g.mu.Lock()
		c.reply.used = true
		g.mu.Unlock()
	}
}

// send sends a complete answer.
func send(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = disk.EncodeJSON(w, body) // an agent that has gone will ask again
}

// stream writes an answer that may begin before it is known.
type stream struct {
	w      http.ResponseWriter
	flush  *http.ResponseController
	events bool
	begun  bool
	err    error
}

func (s *stream) beginEvents() {
	if s.begun {
		return
	}
	s.begun = true
	kind := "application/json"
	if s.events {
		kind = "text/event-stream"
		s.w.Header().Set("Cache-Control", "no-cache")
	}
	s.w.Header().Set("Content-Type", kind)
	s.w.WriteHeader(http.StatusOK)
}

// beat sends a sign of life that means nothing: a comment in a stream, or a line break before JSON.
func (s *stream) beat() {
	s.beginEvents()
	text := "\n"
	if s.events {
		text = ": the model is thinking\n\n"
	}
	s.write([]byte(text))
}

func (s *stream) send(e event) {
	s.beginEvents()
	var text bytes.Buffer
	if e.name != "" {
		text.WriteString("event: " + e.name + "\n")
	}
	data, isText := e.data.(string)
	if !isText {
		raw, err := disk.MarshalJSON(e.data)
		if err != nil {
			s.err = errors.Join(s.err, err)
			return
		}
		data = string(raw)
	}
	text.WriteString("data: " + data + "\n\n")
	s.write(text.Bytes())
}

// refuse says that there is no answer, as far as that is still possible.
func (s *stream) refuse(d dialect, r *refusal) {
	status, body := d.refuse(r)
	switch {
	case !s.begun && status != http.StatusOK:
		send(s.w, status, body)
	case r.streamed:
		s.send(d.broken(r))
	default:
		panic(http.ErrAbortHandler) // the status is sent already
	}
}

func (s *stream) json(body any) {
	s.beginEvents()
	raw, err := disk.MarshalJSON(body)
	s.err = errors.Join(s.err, err)
	s.write(raw)
}

func (s *stream) write(data []byte) {
	_, err := s.w.Write(data)
	s.err = errors.Join(s.err, err, s.flush.Flush())
}

// listen serves the gateway until stop is called, which waits for what is under way.
func (g *gateway) listen(l net.Listener, key string) (stop func()) {
	server := &http.Server{
		Handler: g.handler(key), ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return g.life },
	}
	g.work.Go(func() { _ = server.Serve(l) }) // it ends with the sandbox, which whoever runs the agent notices
	return func() {
		g.end(context.Canceled)
		_ = server.Close()
		_ = l.Close()
		g.work.Wait()
	}
}
