// Package llmtest is an OpenAI-compatible endpoint for tests: it speaks the wire as vLLM does, answers what a script
// says, refuses what vLLM would refuse, and fails in the ways that endpoints fail.
//
//	fake := llmtest.New(llmtest.Text("one"), llmtest.RateLimited(time.Second), llmtest.Text("two"))
//	srv := httptest.NewServer(fake)
//	defer srv.Close()
//
// The package imports only the standard library and package disk. A [Server] is safe for concurrent use; with
// concurrent clients the order of a script is the order of arrival, so give [Server.Answer] instead.
package llmtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"deepswe/env/disk"
)

// Model is an entry of /v1/models.
type Model struct {
	ID string
	// Context is max_model_len: longer prompts are refused. 1,048,576 when 0.
	Context int
	// Entry, when not nil, replaces the whole entry, to speak as another server does.
	Entry map[string]any
}

// Server is the endpoint, an http.Handler for paths below /v1. Set the fields before it is used.
type Server struct {
	// Models are what is served: one named "test-model" when empty.
	Models []Model
	// Key, when not empty, is the only bearer token that is accepted.
	Key string
	// Answer, when not nil, is asked for every completion in place of the script.
	Answer func(Request) Reply
	// TakesTokens serves /tokenize and /detokenize, and /v1/completions for prompts in tokens.
	TakesTokens bool
	// DropsThoughts simulates a chat template that leaves out thoughts from before the user's last message.
	DropsThoughts bool
	// DropsText simulates a chat template that leaves out the text of a reply with calls.
	DropsText bool
	// WeightVersion, if not nil, is returned by /weight_info.
	WeightVersion func() string
	// Without names request members that are refused as unknown, as hosted services do.
	Without []string

	mu       sync.Mutex
	script   []Reply
	requests []Request
}

// New returns a server that gives the replies in order, one for every request for a completion, failures included.
func New(script ...Reply) *Server { return &Server{script: script} }

// Requests are the completions asked for so far, in the order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.Key {
		refuse(w, http.StatusUnauthorized, "Unauthorized", "AuthenticationError")
		return
	}
	switch r.URL.Path {
	case "/v1/models":
		s.serveModels(w)
	case "/v1/chat/completions":
		if r.Method != http.MethodPost {
			refuse(w, http.StatusMethodNotAllowed, "Method Not Allowed", "MethodNotAllowed")
			return
		}
		s.serveCompletion(w, r)
	default:
		s.serveTokens(w, r)
	}
}

func (s *Server) models() []Model {
	if len(s.Models) == 0 {
		return []Model{{ID: "test-model"}}
	}
	return s.Models
}

func (s *Server) serveModels(w http.ResponseWriter) {
	data := []any{}
	for _, m := range s.models() {
		if m.Entry != nil {
			data = append(data, m.Entry)
			continue
		}
		data = append(data, map[string]any{
			"id": m.ID, "object": "model", "created": created, "owned_by": "vllm", "root": m.ID, "parent": nil,
			"max_model_len": m.context(),
		})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

func (m Model) context() int { return cmp.Or(m.Context, 1<<20) }

func (s *Server) serveCompletion(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	req := Request{Header: r.Header.Clone(), Body: raw}
	if err := json.Unmarshal(raw, &req); err != nil {
		refuse(w, http.StatusBadRequest, "body is not JSON: "+err.Error(), "BadRequestError")
		return
	}
	req.dropsThoughts, req.dropsText = s.DropsThoughts, s.DropsText
	s.answer(w, r, req)
}

// answer gives the next reply to a request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, req Request) {
	s.record(&req)
	if status, message := s.refusal(req); status != 0 {
		refuse(w, status, message, map[int]string{404: "NotFoundError"}[status])
		return
	}
	reply, ok := s.nextReply(req)
	if !ok {
		refuse(w, http.StatusBadRequest, "llmtest: the script has no further reply", "ScriptExhausted")
		return
	}
	if reply.Wait > 0 {
		t := time.NewTimer(reply.Wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			return
		}
	}
	if reply.fault != nil {
		reply.fault(w, r, req)
		return
	}
	reply.serve(w, r, req)
}

// record keeps the request and numbers it.
func (s *Server) record(req *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	req.N = len(s.requests)
	s.requests = append(s.requests, *req)
}

func (s *Server) nextReply(req Request) (Reply, bool) {
	if s.Answer != nil {
		return s.Answer(req), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.script) == 0 {
		return Reply{}, false
	}
	reply := s.script[0]
	s.script = s.script[1:]
	return reply, true
}

// refusal returns vLLM's refusal of the request; status 0 means none.
func (s *Server) refusal(req Request) (status int, message string) {
	at := slices.IndexFunc(s.models(), func(m Model) bool { return m.ID == req.Model })
	if at < 0 {
		return http.StatusNotFound, fmt.Sprintf("The model `%s` does not exist.", req.Model)
	}
	for _, key := range s.Without {
		if req.has(key) {
			return http.StatusBadRequest, fmt.Sprintf("Unknown parameter: '%s'.", key)
		}
	}
	if problem := req.problem(); problem != "" {
		return http.StatusBadRequest, problem
	}
	if n, limit := len(req.PromptTokens()), s.models()[at].context(); n > limit {
		return http.StatusBadRequest, fmt.Sprintf("This model's maximum context length is %d tokens. However, your "+
			"request has %d input tokens. Please reduce the length of the input messages.", limit, n)
	}
	return 0, ""
}

// refuse writes an error in the nested shape of OpenAI and of vLLM since 0.11.
func refuse(w http.ResponseWriter, status int, message, kind string) {
	kind = cmp.Or(kind, "BadRequestError")
	writeJSON(w, status, map[string]any{
		"error": map[string]any{"message": message, "type": kind, "param": nil, "code": status},
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(encode(v), '\n'))
}

func encode(v any) []byte {
	data, err := disk.MarshalJSON(v)
	if err != nil {
		panic("llmtest: " + err.Error()) // only what this package builds comes here
	}
	return data
}
