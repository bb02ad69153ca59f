package tinker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/trainer/trainertest"
)

// spoiler is a proxy before a sampler. If spoil is set, it may answer instead of the sampler; if change is set, it
// changes the answers to completions.
type spoiler struct {
	*trainertest.VLLM
	url    string
	spoil  atomic.Pointer[func(w http.ResponseWriter, r *http.Request, body string) (answered bool)]
	change atomic.Pointer[func(answer, choice map[string]any)]
}

func spoiled(t *testing.T, s *trainertest.Server) *spoiler {
	t.Helper()
	v := &spoiler{VLLM: trainertest.NewVLLM(t, s, codec(t))}
	target, err := url.Parse(strings.TrimSuffix(v.URL, "/v1"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse, proxy.ErrorLog = v.modify, log.New(io.Discard, "", 0)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if spoil := v.spoil.Load(); spoil == nil || !(*spoil)(w, r, string(body)) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	v.url = front.URL + "/v1"
	return v
}

func (v *spoiler) modify(r *http.Response) error {
	change := v.change.Load()
	if change == nil || r.StatusCode != http.StatusOK || r.Request.URL.Path != "/v1/completions" {
		return nil
	}
	var answer map[string]any
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		return err
	}
	(*change)(answer, answer["choices"].([]any)[0].(map[string]any))
	data, err := json.Marshal(answer)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	r.Header.Del("Content-Length")
	return err
}

// besides opens a trainer with a working sampler and a spoiled one.
func besides(t *testing.T, patience time.Duration) (*tinker.Trainer, *trainertest.VLLM, *spoiler) {
	t.Helper()
	s := trainertest.New(t, trainertest.Options{Language: digits()})
	good, bad := trainertest.NewVLLM(t, s, codec(t)), spoiled(t, s)
	on := tinker.Samplers{URLs: []string{good.URL, bad.url}, Dir: filepath.Join(t.TempDir(), "adapters")}
	trainer, err := openPatient(t, s, on, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = trainer.Close() })
	return trainer, good, bad
}

// A sampler whose replies cannot come from the version gets no turns while it gives such replies, and none of them is
// used.
func TestRepliesOfAnotherModel(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(answer, choice map[string]any){
		"another model":        func(answer, _ map[string]any) { answer["model"] = "base" },
		"an id that is none":   func(_, choice map[string]any) { choice["token_ids"].([]any)[0] = 1 << 20 },
		"a negative id":        func(_, choice map[string]any) { choice["token_ids"].([]any)[0] = -1 },
		"another prompt":       func(_, choice map[string]any) { choice["prompt_token_ids"] = []int{1} },
		"no token":             func(_, choice map[string]any) { choice["token_ids"] = []int{} },
		"too few logprobs":     func(_, choice map[string]any) { choice["logprobs"] = map[string]any{"token_logprobs": []int{}} },
		"a logprob above zero": func(_, choice map[string]any) { first(choice)[0] = 3.5 },
		"no logprobs":          func(_, choice map[string]any) { delete(choice, "logprobs") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trainer, _, bad := besides(t, 20*time.Second)
			p := publish(t, trainer)
			bad.change.Store(&change)
			asked(t, p.Model)
			ready(t, trainer, 1)
			if err := learn(t, trainer); err != nil {
				t.Fatal(err)
			}
			asked(t, publish(t, trainer).Model)
			bad.change.Store(nil)
			ready(t, trainer, 2)
		})
	}
}

// first returns the logprobs of a choice.
func first(choice map[string]any) []any {
	return choice["logprobs"].(map[string]any)["token_logprobs"].([]any)
}

// A request that a sampler never answers, or wants repeated much later, is given to another sampler, even if the first
// one answers other requests.
func TestRepliesThatNeverCome(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"silence": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"half of it": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"object": "text_comp`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
		"in a day": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusTooManyRequests)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trainer, _, bad := besides(t, 2*time.Second)
			p := publish(t, trainer)
			var lost atomic.Int32
			spoil := func(w http.ResponseWriter, r *http.Request, body string) bool {
				if r.URL.Path != "/v1/completions" || strings.Contains(body, `"max_tokens":1,`) || lost.Add(1) > 3 {
					return false
				}
				answer(w, r)
				return true
			}
			bad.spoil.Store(&spoil)
			begun := time.Now()
			var all sync.WaitGroup
			for i := range 12 {
				all.Go(func() {
					_, err := p.Model.Complete(t.Context(), agent.Request{
						Messages: []agent.Message{{Role: agent.RoleUser, Content: "1"}}, Tokens: true, Rollout: fmt.Sprint(i),
						Sampling: agent.OnPolicy(new(1.0)), MaxTokens: 8,
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if took := time.Since(begun); lost.Load() == 0 || took > time.Minute {
				t.Errorf("%d requests were lost, for %s", lost.Load(), took)
			}
		})
	}
}

// A sampler has the adapters that it lists, not those that it claims to have loaded. If it has another adapter under
// the same name, that is replaced.
func TestAdaptersThatAreListed(t *testing.T) {
	t.Parallel()
	trainer, _, bad := besides(t, 20*time.Second)
	lies := func(w http.ResponseWriter, r *http.Request, _ string) bool {
		if r.URL.Path != "/v1/load_lora_adapter" {
			return false
		}
		_, _ = io.WriteString(w, "Success: LoRA adapter added successfully.")
		return true
	}
	bad.spoil.Store(&lies)
	asked(t, publish(t, trainer).Model)
	ready(t, trainer, 1)
	old := func(_ http.ResponseWriter, r *http.Request, body string) bool {
		var b struct {
			Name string `json:"lora_name"`
		}
		if r.URL.Path == "/v1/load_lora_adapter" && json.Unmarshal([]byte(body), &b) == nil && len(bad.Loaded()) == 0 {
			bad.Put(b.Name, "/elsewhere/old")
			bad.spoil.Store(nil)
		}
		return false
	}
	bad.spoil.Store(&old)
	ready(t, trainer, 2)
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	publish(t, trainer) // which compares both with the trainer
	if n := trainer.Gauges()["samplers/ready"]; n != 2 {
		t.Errorf("%v samplers are ready", n)
	}
}

// A publication does not wait for a sampler that is slow to load what others have loaded.
func TestSlowToLoad(t *testing.T) {
	t.Parallel()
	trainer, _, bad := besides(t, 20*time.Second)
	publish(t, trainer)
	hangs := func(_ http.ResponseWriter, r *http.Request, _ string) bool {
		if r.URL.Path != "/v1/load_lora_adapter" {
			return false
		}
		<-r.Context().Done()
		return true
	}
	bad.spoil.Store(&hangs)
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	asked(t, publish(t, trainer).Model)
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A key that the server has never accepted is refused at once, even if the server answers requests without a key.
func TestWrongKey(t *testing.T) {
	t.Parallel()
	s := trainertest.New(t, trainertest.Options{Language: digits()})
	client, err := tinker.NewClient(tinker.ClientOptions{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Capabilities(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Inject("create_session", trainertest.Fault{Status: 401})
	_, err = client.Create(t.Context(), tinker.ModelOptions{Base: s.Base(), Rank: 8})
	if !errors.Is(err, tinker.ErrAccess) {
		t.Errorf("error = %v", err)
	}
}

// A stalled archive is requested again, and so is a request whose key the server refuses for a while.
func TestStalledArchive(t *testing.T) {
	t.Parallel()
	s, trainer, _, _ := samplers(t, 1)
	s.Inject("archive", trainertest.Fault{Delay: time.Minute}, trainertest.Fault{Status: 401})
	s.Inject("forward", trainertest.Fault{Status: 401}, trainertest.Fault{Status: 403})
	s.Inject("retrieve_future", trainertest.Fault{Status: 401})
	begun := time.Now()
	publish(t, trainer)
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A sampler that loads a version and fails when it is compared with the trainer is put aside. The publication counts
// with the others.
func TestSamplerFailsAtItsCheck(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"down":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"hung":   func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"busy":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"broken": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a page": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>welcome</html>") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trainer, _, bad := besides(t, 20*time.Second)
			publish(t, trainer)
			var loaded atomic.Bool
			fails := func(w http.ResponseWriter, r *http.Request, _ string) bool {
				if r.URL.Path == "/v1/load_lora_adapter" {
					loaded.Store(true)
					return false
				}
				if loaded.Load() {
					answer(w, r)
				}
				return loaded.Load()
			}
			bad.spoil.Store(&fails)
			if err := learn(t, trainer); err != nil {
				t.Fatal(err)
			}
			p := publish(t, trainer)
			asked(t, p.Model)
			if n := served(bad.VLLM, 1); p.Version != 1 || n > 0 {
				t.Errorf("version %d was published, and the sampler that failed gave %d replies", p.Version, n)
			}
			ready(t, trainer, 1)
			bad.spoil.Store(nil)
			ready(t, trainer, 2)
		})
	}
}

// The turns of a sampler that is put aside go to all others, and not to one of them.
func TestTurnsOfALostSamplerAreSpread(t *testing.T) {
	t.Parallel()
	_, trainer, vllms := three(t, trainertest.Up, 20*time.Second)
	p := publish(t, trainer)
	counted := make([]int, len(vllms))
	turns := func() (more []int) { // since the last call, by sampler
		asked(t, p.Model)
		for i, v := range vllms {
			n := served(v, 0)
			more, counted[i] = append(more, n-counted[i]), n
		}
		return more
	}
	for i, v := range vllms {
		counted[i] = served(v, 0) // for the comparison with the trainer
	}
	before := turns()
	vllms[2].Set(trainertest.Down)
	ready(t, trainer, 2)
	after := turns()
	if after[0] <= before[0] || after[1] <= before[1] || after[2] != 0 {
		t.Errorf("the samplers had %v turns, and %v without the last", before, after)
	}
}
