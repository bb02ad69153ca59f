package trainertest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/rl/trainer/tinker"
)

// VLLM is a fake vLLM server that samples from prompts of token ids and loads adapters while it runs. It answers in
// the words of recordings of vLLM 0.32. Its adapters are those of a Server, whose policies answer.
type VLLM struct {
	// URL is the address of its OpenAI endpoint.
	URL string

	trainer *Server
	codec   tinker.Codec

	mu      sync.Mutex
	loaded  map[string]loadedAdapter
	served  map[string]int // replies by adapter
	prompts [][]int32
	texts   map[string]string // of conversations, by their ids
	state   State
	// computed is how many tokens it has sampled.
	computed int
	fixed    bool // adapters cannot be loaded
	unmarked bool // no token looks like a mark
	// changed is closed when the state changes: requests that hang end then, as when a server is killed.
	changed chan struct{}
}

// State is how a VLLM answers.
type State int

// The states of a VLLM.
const (
	Up    State = iota
	Down        // it breaks every connection
	Hung        // it accepts requests and never answers
	Busy        // it answers 429
	Slow        // it takes a while for a reply
	Stuck       // it lists its models, and never gives a reply
	Full        // it gives a reply after a long time, and works meanwhile
)

// slowReply is how long a Slow server takes for a reply, fullReply a Full one.
const (
	slowReply = time.Second
	fullReply = 15 * time.Second
)

type loadedAdapter struct{ root, address string }

// NewVLLM starts a fake vLLM server. The codec decodes the policy's replies.
func NewVLLM(t testing.TB, trainer *Server, codec tinker.Codec) *VLLM {
	v := &VLLM{
		trainer: trainer, codec: codec, loaded: map[string]loadedAdapter{}, served: map[string]int{},
		texts: map[string]string{}, changed: make(chan struct{}),
	}
	s := httptest.NewServer(v)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	v.URL = s.URL + "/v1"
	return v
}

// Restart forgets all adapters.
func (v *VLLM) Restart() { v.change(func() { clear(v.loaded) }) }

// Set changes the state of the server.
func (v *VLLM) Set(to State) {
	v.change(func() {
		v.state = to
		close(v.changed)
		v.changed = make(chan struct{})
	})
}

// Fix makes the server refuse to load adapters, as without VLLM_ALLOW_RUNTIME_LORA_UPDATING.
func (v *VLLM) Fix() { v.change(func() { v.fixed = true }) }

// Unmark makes the server's chat template write words in place of marks.
func (v *VLLM) Unmark() { v.change(func() { v.unmarked = true }) }

// Put loads an adapter as another program would.
func (v *VLLM) Put(name, root string) {
	v.change(func() { v.loaded[name] = loadedAdapter{root: root} })
}

func (v *VLLM) change(what func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	what()
}

// Loaded names the adapters.
func (v *VLLM) Loaded() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.loaded))
}

// Served is how many replies each adapter has given.
func (v *VLLM) Served() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.served)
}

// Prompts are all that were sampled from.
func (v *VLLM) Prompts() [][]int32 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.prompts)
}

// vllmBody is the body of any request.
type vllmBody struct {
	Name string `json:"lora_name"`
	Path string `json:"lora_path"`

	Model    string  `json:"model"`
	Prompt   prompt  `json:"prompt"`
	Tokens   []int32 `json:"tokens"`
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
	Begin     bool    `json:"add_generation_prompt"`
	MaxTokens int     `json:"max_tokens"`
	Seed      *int64  `json:"seed"`
	Stop      []int32 `json:"stop_token_ids"`
}

func (v *VLLM) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var b vllmBody
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
			v.refuse(w, 400, "BadRequestError", "%v", err)
			return
		}
	}
	v.mu.Lock()
	state, changed := v.state, v.changed
	v.mu.Unlock()
	switch {
	case state == Down:
		panic(http.ErrAbortHandler)
	case state == Hung, state == Stuck && b.Model != "":
		select {
		case <-r.Context().Done():
		case <-changed:
		}
		panic(http.ErrAbortHandler)
	case state == Busy:
		v.refuse(w, 429, "RateLimitError", "Too many requests")
		return
	case state == Slow && b.Model != "":
		time.Sleep(slowReply)
	case state == Full && b.Model != "":
		time.Sleep(fullReply)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch path := r.URL.Path; {
	case path == "/v1/models":
		data := []any{map[string]any{
			"id": "base", "object": "model", "root": "base", "parent": nil, "max_model_len": 1 << 16}}
		for name, a := range v.loaded {
			data = append(data, map[string]any{"id": name, "object": "model", "root": a.root, "parent": "base"})
		}
		writeJSON(w, 200, map[string]any{"object": "list", "data": data})
	case path == "/metrics":
		if state == Full {
			v.computed++
		}
		const name = "vllm:generation_tokens_total"
		fmt.Fprintf(w, "# TYPE %[1]s counter\n%[1]s{engine=\"0\"} %[2]d\n", name, v.computed)
	case path == "/tokenize":
		v.tokenize(w, b)
	case path == "/detokenize":
		writeJSON(w, 200, map[string]string{"prompt": v.detokenize(b.Tokens)})
	case path == "/v1/completions":
		v.complete(w, b)
	case path == "/v1/load_lora_adapter" && !v.fixed:
		v.load(w, b)
	case path == "/v1/unload_lora_adapter" && !v.fixed:
		if _, ok := v.loaded[b.Name]; !ok {
			v.refuse(w, 404, "NotFoundError", "The lora adapter '%s' cannot be found.", b.Name)
			return
		}
		delete(v.loaded, b.Name)
		fmt.Fprintf(w, "Success: LoRA adapter '%s' removed successfully.", b.Name)
	default:
		writeJSON(w, 404, map[string]string{"detail": "Not Found"})
	}
}

func (v *VLLM) refuse(w http.ResponseWriter, status int, kind, format string, args ...any) {
	writeJSON(w, status, map[string]any{"error": map[string]any{
		"message": fmt.Sprintf(format, args...), "type": kind, "param": nil, "code": status}})
}

func (v *VLLM) load(w http.ResponseWriter, b vllmBody) {
	if _, ok := v.loaded[b.Name]; ok {
		v.refuse(w, 400, "InvalidUserInput", "The lora adapter '%s' has already been loaded. If you want to load the "+
			"adapter in place, set 'load_inplace' to True.", b.Name)
		return
	}
	address, err := addressIn(b.Path)
	if err != nil {
		v.refuse(w, 404, "NotFoundError", "Loading lora %s failed: No adapter found for %s", b.Name, b.Path)
		return
	}
	v.loaded[b.Name] = loadedAdapter{b.Path, address}
	fmt.Fprintf(w, "Success: LoRA adapter '%s' added successfully.", b.Name)
}

func (v *VLLM) complete(w http.ResponseWriter, b vllmBody) {
	a, ok := v.loaded[b.Model]
	if !ok {
		v.refuse(w, 404, "NotFoundError", "The model `%s` does not exist.", b.Model)
		return
	}
	ids, logprobs, err := v.trainer.generate(a.address, b)
	if err != nil {
		v.refuse(w, 400, "BadRequestError", "%v", err)
		return
	}
	v.served[b.Model]++
	v.computed += len(ids)
	v.prompts = append(v.prompts, b.Prompt.ids)
	reason, said := "length", ids
	if last := len(ids) - 1; slices.Contains(b.Stop, ids[last]) {
		reason, said = "stop", ids[:last]
	}
	writeJSON(w, 200, map[string]any{
		"object": "text_completion", "model": b.Model,
		"choices": []any{map[string]any{
			"index": 0, "text": v.codec.Reply(said, agent.Request{}).Content, "finish_reason": reason, "token_ids": ids,
			"prompt_token_ids": b.Prompt.ids, "logprobs": map[string]any{"token_logprobs": logprobs},
		}},
		"usage": map[string]int{"prompt_tokens": len(b.Prompt.ids), "completion_tokens": len(ids)},
	})
}

// generate samples from what was saved for sampling, as vLLM does: no model of the server need be loaded for it.
func (s *Server) generate(address string, b vllmBody) ([]int32, []float64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.exports[address]
	m := k.owner
	if m == nil {
		return nil, nil, fmt.Errorf("the policy of %s is gone", address)
	}
	seed := int64(len(s.futures))
	if b.Seed != nil {
		seed = *b.Seed
	}
	ids, logprobs, err := m.policy.Generate(k.policy, m.speech.read(b.Prompt.ids), cmp.Or(b.MaxTokens, 16), 1, seed)
	return m.speech.write(ids), logprobs, err
}

// addressKey is the member of an adapter's metadata that says which policy it is.
const addressKey = "address"

type adapterFile struct {
	name string
	data []byte
}

// adapter returns the files of an adapter, whose weights only name a policy. The caller holds s.mu.
func (s *Server) adapter(address string) (files []adapterFile, ok bool) {
	k, ok := s.saved[address]
	if !ok || k.kind != "sampler" {
		return nil, false
	}
	header, err := json.Marshal(map[string]any{
		"__metadata__": map[string]string{addressKey: address},
		"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": map[string]any{
			"dtype": "F32", "shape": []int{1}, "data_offsets": []int{0, 4}},
	})
	if err != nil {
		panic(err) // it always encodes
	}
	weights := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	config := fmt.Appendf(nil, `{"peft_type": "LORA", "r": %d, "lora_alpha": 32, "target_modules": null}`, k.rank)
	return []adapterFile{
		{"adapter_config.json", config}, {"adapter_model.safetensors", append(weights, 0, 0, 0, 0)},
	}, true
}

// archive packs what was saved for sampling as SkyRL does: an adapter or, uncompressed, the folder of a model that
// has only one tensor. The caller holds s.mu.
func (s *Server) archive(address string) (int, any) {
	files, ok := s.adapter(address)
	if !ok {
		return detail(404, "Checkpoint not found")
	}
	var b bytes.Buffer
	if s.options.LoRASync != "" || s.options.Whole {
		archive(&b, []adapterFile{
			{"./config.json", []byte("{}")}, {"./model.safetensors", files[1].data},
			{"./additional_chat_templates/tools.jinja", nil},
		})
		return 200, b.Bytes()
	}
	zipped := gzip.NewWriter(&b)
	archive(zipped, files)
	_ = zipped.Close() // nothing can fail in memory
	return 200, b.Bytes()
}

func archive(w io.Writer, files []adapterFile) {
	out := tar.NewWriter(w)
	for _, f := range files {
		// Nothing can fail in memory.
		_ = out.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Size: int64(len(f.data)), Mode: 0o600})
		_, _ = out.Write(f.data)
	}
	_ = out.Close()
}

// directory writes an adapter to a new directory, and redirects to its file: URL, as TuFT does. The caller holds s.mu.
func (s *Server) directory(address string) (int, any) {
	if _, ok := s.saved[address]; !ok {
		return detail(404, "Checkpoint not found")
	}
	dir := filepath.Join(s.dir, s.id("checkpoint"))
	if err := s.writeAdapter(filepath.Join(dir, "adapter"), address); err != nil {
		return detail(500, "%v", err)
	}
	return 302, redirect("file://" + dir)
}

// writeAdapter writes the files of an adapter into a directory. The caller holds s.mu.
func (s *Server) writeAdapter(dir, address string) error {
	files, ok := s.adapter(address)
	if !ok {
		return fmt.Errorf("%s is not saved for sampling", address)
	}
	err := os.MkdirAll(dir, 0o755)
	for _, f := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, f.name), f.data, 0o600))
	}
	return err
}

// addressIn finds the policy of an unpacked adapter.
func addressIn(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "adapter_model.safetensors"))
	if err != nil || len(data) < 8 {
		return "", fmt.Errorf("no adapter: %w", err)
	}
	var header struct {
		Metadata map[string]string `json:"__metadata__"`
	}
	size := binary.LittleEndian.Uint64(data)
	err = json.Unmarshal(data[8:8+size], &header)
	return header.Metadata[addressKey], err
}
