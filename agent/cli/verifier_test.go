package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// If a judge's endpoint refuses a request, the error names the flags and the variable that chose the judge.
func TestHintsOfAJudge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags  VerifierFlags // "URL" stands for the endpoint's
		vars   map[string]string
		status int
		want   string
	}{
		"an endpoint of its own": {VerifierFlags{JudgeURL: "URL"}, nil, 401,
			"the endpoint wants a key: set DEEPSWE_JUDGE_API_KEY"},
		"with a key": {VerifierFlags{JudgeURL: "URL"}, map[string]string{"DEEPSWE_JUDGE_API_KEY": "wrong"}, 401,
			"refuses the key: set DEEPSWE_JUDGE_API_KEY"},
		"with the model's key": {VerifierFlags{JudgeURL: "URL"}, map[string]string{"OPENAI_API_KEY": "wrong"}, 401,
			"refuses the key: set DEEPSWE_JUDGE_API_KEY"},
		"another model": {VerifierFlags{JudgeModel: "judge"}, nil, 403,
			"set DEEPSWE_JUDGE_API_KEY or --judge-model to what"},
		"moved":                       {VerifierFlags{JudgeURL: "URL"}, nil, 308, "set --judge-url to that"},
		"moved, with the model":       {VerifierFlags{JudgeModel: "judge"}, nil, 308, "set --base-url to that"},
		"an address without a server": {VerifierFlags{JudgeURL: "http://127.0.0.1:1"}, nil, 0, "is --judge-url right?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "https://elsewhere/v1/models")
				w.WriteHeader(c.status)
			}))
			defer endpoint.Close()
			c.flags.JudgeURL = strings.ReplaceAll(c.flags.JudgeURL, "URL", endpoint.URL)
			w := World{Getenv: environment(c.vars)}
			_, _, err := c.flags.OpenJudge(t.Context(), w, nil, &ModelFlags{EndpointFlags: EndpointFlags{BaseURL: endpoint.URL}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}
