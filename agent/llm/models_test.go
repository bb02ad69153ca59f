package llm_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/agent/llm/llmtest"
)

func respond(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write([]byte(body))
	})
}

func TestDiscover(t *testing.T) {
	tests := map[string]struct {
		body  string
		model string
		want  llm.ServedModel
		err   string
	}{
		"vllm": {body: `{"data":[{"id":"a","max_model_len":32768,"owned_by":"vllm"}]}`,
			want: llm.ServedModel{ID: "a", Context: 32768, Owner: "vllm"}},
		"adapter": {body: `{"data":[{"id":"a","max_model_len":32768},{"id":"v7","parent":"a","max_model_len":null}]}`,
			model: "v7", want: llm.ServedModel{ID: "v7", Context: 32768}},
		"llama.cpp": {body: `{"models":[{}],"data":[{"id":"/m/x.gguf","aliases":["x"],"owned_by":"llamacpp","meta":{"n_ctx":8192,"n_ctx_train":65536}}]}`, model: "x", want: llm.ServedModel{ID: "x", Context: 8192, Trained: 65536, Owner: "llamacpp", Aliases: []string{"x"}}},
		"older llama.cpp": {body: `{"data":[{"id":"x","meta":{"n_ctx_train":4096}}]}`,
			want: llm.ServedModel{ID: "x", Trained: 4096, Owner: "llamacpp"}}, // the trained length is no limit
		"ollama": {body: `{"data":[{"id":"qwen3:latest","owned_by":"library"}]}`, model: "qwen3",
			want: llm.ServedModel{ID: "qwen3", Owner: "library"}},
		"router": {body: `{"data":[{"id":"a/b","context_length":131072}]}`,
			want: llm.ServedModel{ID: "a/b", Context: 131072}},
		"bare list": {body: `[{"id":"a"}]`, want: llm.ServedModel{ID: "a"}},
		"unlisted":  {body: `{"data":[{"id":"a","max_model_len":1}]}`, model: "b", want: llm.ServedModel{ID: "b", Unlisted: true}},
		"several": {body: `{"data":[{"id":"a"},{"id":"b"}]}`,
			err: "it serves several models: a, b; set --model or DEEPSWE_MODEL to one of them"},
		"none": {body: `{"object":"list","data":null}`, err: "it serves no model; load one"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := dial(t, respond(200, tt.body), llm.Options{Model: tt.model}).Discover(t.Context())
			if tt.err != "" {
				if !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An endpoint may serve names that it does not list. One that does not know the model is detected before any work.
func TestProbe(t *testing.T) {
	fake := llmtest.New()
	fake.Models = []llmtest.Model{{ID: "a"}, {ID: "b"}}
	c := dial(t, fake, llm.Options{Model: "c"})
	if err := c.Probe(t.Context()); !errors.Is(err, llm.ErrNotServed) || !strings.Contains(err.Error(), "a, b") {
		t.Errorf("got %v", err)
	}
	if _, err := dial(t, fake, llm.Options{}).Discover(t.Context()); !errors.Is(err, llm.ErrNoModelChosen) {
		t.Errorf("got %v", err)
	}
	for _, status := range []int{200, 500, 429} { // the first real request will report these
		if err := dial(t, respond(status, `{}`), llm.Options{Model: "c"}).Probe(t.Context()); err != nil {
			t.Errorf("status %d: %v", status, err)
		}
	}
}

func TestDiscoverWithoutAList(t *testing.T) {
	c := dial(t, respond(404, `{"detail":"Not Found"}`), llm.Options{Model: "m"})
	if got, err := c.Discover(t.Context()); err != nil || got.ID != "m" || got.Context != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	c = dial(t, respond(404, `{"detail":"Not Found"}`), llm.Options{})
	if _, err := c.Discover(t.Context()); !errors.Is(err, agent.ErrModelUnavailable) ||
		!strings.Contains(err.Error(), "set --model") {
		t.Errorf("got %v", err)
	}
}

func TestTheOnlyModelIsUsed(t *testing.T) {
	fake := llmtest.New(llmtest.Text("ok"))
	fake.Models = []llmtest.Model{{ID: "the-one"}}
	if _, err := dial(t, fake, llm.Options{}).Complete(t.Context(), ask("x")); err != nil {
		t.Fatal(err)
	}
	if got := fake.Requests()[0].Model; got != "the-one" {
		t.Errorf("asked %q", got)
	}
}

func TestCheck(t *testing.T) {
	fake := llmtest.New(llmtest.Text("yes, certainly"))
	fake.Models = []llmtest.Model{{ID: "m", Context: 16384}}
	h, err := dial(t, fake, llm.Options{}).Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if h.Model.ID != "m" || h.Model.Context != 16384 || !h.TokenIDs || h.Latency <= 0 || len(h.Models) != 1 ||
		len(h.Warnings) != 1 {
		t.Errorf("got %+v", h)
	}

	fake = llmtest.New(llmtest.Text("yes"))
	fake.Models = []llmtest.Model{{ID: "m", Entry: map[string]any{"id": "m", "owned_by": "library"}}}
	fake.Without = []string{"return_token_ids"}
	h, err = dial(t, fake, llm.Options{}).Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if h.TokenIDs || len(h.Warnings) != 1 || !strings.Contains(h.Warnings[0], "pass --context") {
		t.Errorf("got %+v", h)
	}

	fake = llmtest.New(llmtest.Status(401, "no"))
	if h, err = dial(t, fake, llm.Options{}).Check(t.Context()); err == nil || h.Model.ID != "test-model" {
		t.Errorf("got %+v, %v", h, err)
	}
}
