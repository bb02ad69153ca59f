package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/llm"
)

// Anything may listen on the usual addresses of model servers: only a list of models counts, and redirects are not
// followed.
func TestAnswering(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("another server was asked")
	}))
	defer elsewhere.Close()
	t.Setenv("HTTP_PROXY", elsewhere.URL)
	var places, want []ModelServer
	for _, c := range []struct {
		answer http.HandlerFunc
		name   string // empty if it is no server of models
		models []string
		owner  string // of the first
	}{
		{says(`{"object":"list","data":[{"id":"qwen3","owned_by":"library"},{"id":"devstral"}]}`), "Ollama",
			[]string{"qwen3", "devstral"}, "library"},
		{says("<!doctype html>"), "", nil, ""},
		{says(`{"object":"list","data":[]}`), "", nil, ""},
		{says(`{"data":[{"id":"x"}]}`), "", nil, ""},
		{http.NotFound, "", nil, ""},
		{func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, "", nil, ""},
		{func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "", nil, ""}, // hangs
		{func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "" {
				t.Errorf("asked for %s with the key %q", r.URL, r.Header.Get("Authorization"))
			}
			says(`{"object":"list","data":[{"id":"m","owned_by":"me"}]}`)(w, r)
		}, "usual", []string{"m"}, "me"},
	} {
		server := httptest.NewServer(c.answer)
		defer server.Close()
		s := ModelServer{Name: "usual", BaseURL: server.URL + "/v1"}
		places = append(places, s)
		if c.name != "" {
			s.Name = c.name
			for i, id := range c.models {
				m := llm.ServedModel{ID: id}
				if i == 0 {
					m.Owner = c.owner
				}
				s.Models = append(s.Models, m)
			}
			want = append(want, s)
		}
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	places = append(places, ModelServer{Name: "usual", BaseURL: gone.URL + "/v1"})
	if diff := cmp.Diff(want, answering(t.Context(), places)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func TestAdvise(t *testing.T) {
	what, command := advise([]ModelServer{
		{Name: "Ollama", BaseURL: "http://127.0.0.1:11434/v1",
			Models: []llm.ServedModel{{ID: "a b"}, {ID: "b"}, {ID: "c"}, {ID: "d"}, {ID: "e"}}},
		{Name: "vLLM", BaseURL: "http://127.0.0.1:8000/v1", Models: []llm.ServedModel{{ID: "m"}}},
	})
	if want := "Ollama answers at http://127.0.0.1:11434/v1 (a b, b, c and 2 more)\n" +
		"vLLM answers at http://127.0.0.1:8000/v1 (m)"; what != want {
		t.Errorf("%s, want %s", what, want)
	}
	if want := "export DEEPSWE_BASE_URL=http://127.0.0.1:11434/v1 DEEPSWE_MODEL='a b'"; command != want {
		t.Errorf("%s, want %s", command, want)
	}
}
