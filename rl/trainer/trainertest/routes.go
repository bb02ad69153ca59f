package trainertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// body is the body of any request. Unknown members are ignored, as by the real server.
type body struct {
	Session  string `json:"session_id"`
	Base     string `json:"base_model"`
	LoRA     *lora  `json:"lora_config"`
	Model    string `json:"model_id"`
	Sequence *int64 `json:"seq_id"`

	Forward  *passBody `json:"forward_input"`
	Backward *passBody `json:"forward_backward_input"`
	Adam     *adamBody `json:"adam_params"`

	Path            string `json:"path"`
	SamplingNumber  *int64 `json:"sampling_session_seq_id"`
	SamplingSession string `json:"sampling_session_id"`

	Prompt  *inputBody  `json:"prompt"`
	Samples int         `json:"num_samples"`
	Params  *paramsBody `json:"sampling_params"`

	Request string `json:"request_id"`
}

type lora struct {
	Rank int   `json:"rank"`
	Seed int64 `json:"seed"`
}

type inputBody struct {
	Chunks []chunkBody `json:"chunks"`
}

type chunkBody struct {
	Tokens []int32 `json:"tokens"`
}

func (i *inputBody) ids() []int32 {
	var ids []int32
	for _, c := range i.Chunks {
		ids = append(ids, c.Tokens...)
	}
	return ids
}

type numbers struct {
	Data []float64 `json:"data"`
}

type idsBody struct {
	Data []int32 `json:"data"`
}

type datumBody struct {
	Input  inputBody `json:"model_input"`
	Inputs struct {
		Targets                       *idsBody `json:"target_tokens"`
		Weights, Logprobs, Advantages *numbers
	} `json:"loss_fn_inputs"`
}

type passBody struct {
	Data []datumBody `json:"data"`
	Loss string      `json:"loss_fn"`
}

type adamBody struct {
	LearningRate float64 `json:"learning_rate"`
	Beta1        float64 `json:"beta1"`
	Beta2        float64 `json:"beta2"`
	Epsilon      float64 `json:"eps"`
	WeightDecay  float64 `json:"weight_decay"`
}

type paramsBody struct {
	MaxTokens   int     `json:"max_tokens"`
	Seed        *int64  `json:"seed"`
	Temperature float64 `json:"temperature"`
	Stop        []int32 `json:"stop"`
}

// route answers a request.
func (s *Server) route(r *http.Request, path string, data []byte) (int, any) {
	if r.Method != http.MethodPost {
		return s.get(r, path)
	}
	if most := s.options.MaxBody; most > 0 && len(data) > most {
		return http.StatusRequestEntityTooLarge, "<html><title>413 Request Entity Too Large</title></html>"
	}
	var b body
	if kind := r.Header.Get("Content-Type"); kind == kindProtobuf {
		var refused any
		var status int
		if b, path, refused, status = s.readProtobuf(r, data); refused != nil {
			return status, refused
		}
	} else if s.options.Wire.strict() && strings.HasPrefix(path, "forward") {
		return http.StatusUnsupportedMediaType, map[string]string{
			"detail": fmt.Sprintf("Unsupported Content-Type %q; expected %s", kind, kindProtobuf)}
	} else if err := json.Unmarshal(data, &b); err != nil {
		return http.StatusUnprocessableEntity, map[string]any{
			"detail": []any{map[string]any{"loc": []any{"body"}, "msg": err.Error(), "input": string(data)}},
		}
	}
	if path == "retrieve_future" {
		return s.poll(r, b.Request)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch path {
	case "client/config":
		config := map[string]any{"pjwt_auth_enabled": false}
		maps.Copy(config, s.options.Config)
		return 200, config
	case "create_session":
		id := s.id("session")
		s.sessions[id] = &session{}
		return 200, map[string]any{"type": path, "session_id": id, "info_message": nil, "error_message": nil}
	case "session_heartbeat":
		if s.sessions[b.Session] == nil {
			return detail(404, "Session not found")
		}
		s.sessions[b.Session].seen = time.Now()
		return 200, map[string]any{"type": path}
	case "create_model":
		return s.create(b)
	case "unload_model":
		f := s.queue("unload_model", b)
		return 200, map[string]any{"request_id": f.id(), "model_id": b.Model}
	case "asample":
		return s.asked(b)
	case "save_weights", "save_weights_for_sampler":
		return s.save(path, b)
	case "forward", "forward_backward", "optim_step", "load_weights":
		if !s.created[b.Model] && !s.options.TuFT {
			return detail(404, "Model not found")
		}
		if strings.HasPrefix(path, "forward") && s.created[b.Model] {
			s.passes[strings.TrimSpace(r.Header.Get("Content-Type")+" "+r.Header.Get("Content-Encoding"))]++
		}
		return s.train(path, b)
	}
	return detail(404, "Not Found")
}

func (s *Server) create(b body) (int, any) {
	switch {
	case s.sessions[b.Session] == nil:
		return detail(404, "Session not found")
	case b.LoRA == nil:
		return 422, map[string]any{"detail": []any{map[string]any{"type": "missing", "loc": []any{"body", "lora_config"},
			"msg": "Field required", "input": b}}}
	}
	b.Model = s.id("model")
	s.created[b.Model] = true
	f := s.queue("create_model", b)
	return 200, map[string]any{
		"model_id": b.Model, "base_model": b.Base, "status": "created", "request_id": f.id(), "lora_config": b.LoRA,
	}
}

// train queues an operation on a model. It recognises a repeated request if the server is configured to.
func (s *Server) train(path string, b body) (int, any) {
	switch {
	case path == "optim_step" && b.Adam != nil && b.Adam.LearningRate < 0:
		return 422, map[string]any{"detail": []any{map[string]any{
			"loc": []any{"body", "adam_params", "learning_rate"}, "msg": "Input should be greater than or equal to 0"}}}
	case path == "load_weights" && s.models[b.Model] != nil && s.models[b.Model].loads:
		return detail(400, "LoadWeights is not permitted with seq_id %d", *b.Sequence)
	case path == "load_weights" && s.saved[b.Path].kind != "training":
		return detail(404, "Checkpoint not found: %s", b.Path)
	}
	if m := s.models[b.Model]; path == "load_weights" && m != nil {
		m.loads = true
	}
	if path != "load_weights" && s.options.Dedups && b.Sequence != nil {
		key := b.Model + "/" + strconv.FormatInt(*b.Sequence, 10)
		if f := s.repeated[key]; f != nil {
			if f.operation != path || !same(f.body, b) {
				return detail(409, "Training request sequence number was reused")
			}
			return s.pending(f)
		}
		f := s.queue(path, b)
		s.repeated[key] = f
		return s.pending(f)
	}
	return s.pending(s.queue(path, b))
}

func same(a, b body) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

func (s *Server) pending(f *future) (int, any) {
	return 200, map[string]any{"future_id": f.id(), "status": "pending", "request_id": f.id()}
}

var checkpointName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func (s *Server) save(path string, b body) (int, any) {
	if path == "save_weights_for_sampler" && b.Path == "" {
		if b.SamplingNumber == nil || b.Sequence == nil {
			return detail(422, "Either 'path' or both 'sampling_session_seq_id' and 'seq_id' must be provided")
		}
		b.Path = fmt.Sprintf("ss%d_seq%d", *b.SamplingNumber, *b.Sequence)
	}
	if !checkpointName.MatchString(b.Path) {
		return 422, map[string]any{"detail": []any{map[string]any{
			"loc": []any{"body", "path"}, "msg": "String should match pattern '^[a-zA-Z0-9_-]+$'"}}}
	}
	key := path + "/" + b.Model + "/" + b.Path
	if s.names[key] {
		return detail(409, "Checkpoint '%s' already exists for model '%s'", b.Path, b.Model)
	}
	s.names[key] = true
	return s.pending(s.queue(path, b))
}

func (s *Server) asked(b body) (int, any) {
	engines := s.options.Whole && b.Base == s.options.Base
	if engines {
		b.SamplingSession = s.latest
	}
	switch {
	case b.SamplingSession == "" && !engines || b.Sequence == nil:
		return detail(422, "Value error, 'seq_id' must be provided when 'sampling_session_id' is used")
	case b.Params == nil || b.Params.MaxTokens < 1:
		return detail(400, "max_tokens must be a positive number")
	}
	if _, ok := s.samplers[b.SamplingSession]; !ok && !engines {
		return detail(404, "Sampling session not found")
	}
	if b.Params.Seed == nil {
		b.Params.Seed = new(int64(1000 * len(s.futures))) // another one each time
	}
	b.Model = s.samplers[b.SamplingSession].model
	return s.pending(s.queue("sample", b))
}

// poll answers a request for a result once there is one, or at the latest after the time for which polls are held.
func (s *Server) poll(r *http.Request, id string) (int, any) {
	n, err := strconv.Atoi(id)
	if err != nil {
		return 500, "Internal Server Error"
	}
	s.mu.Lock()
	if n -= s.before; n < 1 || n > len(s.futures) {
		s.mu.Unlock()
		return detail(404, "Future not found")
	}
	f := s.futures[n-1]
	s.mu.Unlock()
	select {
	case <-f.done:
	case <-time.After(s.options.Hold):
		return detail(408, "Timeout waiting for result")
	case <-r.Context().Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.status >= 300 {
		return detail(f.status, "%s", f.text)
	}
	return 200, s.encoded(r, f)
}

// get answers requests with a method other than POST.
func (s *Server) get(r *http.Request, path string) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := strings.Split(path, "/")
	switch {
	case path == "healthz":
		return 200, map[string]string{"status": "ok"}
	case path == "get_server_capabilities":
		model := map[string]any{"model_name": s.options.Base}
		if s.options.TuFT {
			model["capabilities"] = []string{"training", "sampling"}
		}
		return 200, map[string]any{"supported_models": []any{model}}
	case r.Method == http.MethodGet && len(parts) == 5 && parts[4] == "archive" && s.options.TuFT:
		return s.directory("tinker://" + parts[1] + "/sampler_weights/" + parts[3])
	case r.Method == http.MethodGet && len(parts) == 5 && parts[4] == "archive":
		return 302, redirect("/api/v1/" + strings.Join(parts[:4], "/") + "/download")
	case r.Method == http.MethodGet && len(parts) == 5 && parts[4] == "download":
		return s.archive("tinker://" + parts[1] + "/sampler_weights/" + parts[3])
	case r.Method == http.MethodDelete && len(parts) == 5 && s.options.Dedups:
		address := "tinker://" + parts[1] + "/" + parts[3] + "/" + parts[4]
		if _, ok := s.saved[address]; !ok {
			return detail(404, "Checkpoint not found")
		}
		delete(s.saved, address)
		os.Remove(filepath.Join(s.dir, fileName(address)+".policy"))
		return 204, nil
	}
	return detail(404, "Not Found")
}
