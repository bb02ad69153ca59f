package verifycmd

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/agent/cli"
)

// A dataset is fetched from the given hub, and what is printed can be passed to --tasks. Without a hub, the message
// says how to fetch the files by hand.
func TestData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer hf_secret":
			w.WriteHeader(http.StatusForbidden)
		case strings.HasPrefix(r.URL.Path, "/api/datasets/ByteDance-Seed/Multi-SWE-bench/revision/56ff018c"):
			_, _ = io.WriteString(w, `{"siblings": [{"rfilename": "go/a__b.jsonl", "size": 3}, {"rfilename": "java/c.jsonl"}]}`)
		default:
			_, _ = io.WriteString(w, "{}\n")
		}
	}))
	defer hub.Close()
	environment := map[string]string{"HF_TOKEN": "hf_secret", "XDG_CACHE_HOME": dir}
	kept := filepath.Join(dir, "deepswe", "data", "multi-swe-bench")
	for _, c := range []struct {
		about       string
		environment map[string]string
		args        []string
		code        int
		out, errOut string
	}{
		{"the list", nil, nil, 0, "swe-bench-verified", ""},
		{"no hub", environment, []string{"multi-swe-bench"}, cli.ExitUsage, "",
			"--revision 56ff018c04a38e27ada1e9d0a6d5839a51f88f0d --include 'go/*.jsonl' 'rust/*.jsonl' --local-dir " + kept},
		{"an unknown name", nil, []string{"swe-bench"}, cli.ExitUsage, "", `no dataset is named "swe-bench"`},
		{"no address", nil, []string{"swe-smith", "--hub", "hub"}, cli.ExitUsage, "", "--hub hub is not an address"},
		{"no token", nil, []string{"multi-swe-bench", "--hub", hub.URL, "--out", kept}, cli.ExitUsage, "", "HF_TOKEN"},
		{"a fetch", environment, []string{"multi-swe-bench", "--hub", hub.URL}, 0, filepath.Join(kept, "go/*.jsonl"),
			"1 file of ByteDance-Seed/Multi-SWE-bench, revision 56ff018c"},
		{"all there", environment, []string{"multi-swe-bench"}, 0, kept, ""},
	} {
		got := deepsweWith(t, "", c.environment, append([]string{"data"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.out, c.out) || !strings.Contains(got.errOut, c.errOut) {
			t.Errorf("%s: exit code %d\n%s%s", c.about, got.code, got.out, got.errOut)
		}
	}
}
