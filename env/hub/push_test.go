package hub_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env/hub"
	"deepswe/env/hub/testdata/hubtest"
	"deepswe/env/testkit"
)

// model makes a folder with a model of three shards, and returns it with the files to be published.
func model(t *testing.T) (dir string, files map[string]string) {
	t.Helper()
	dir = t.TempDir()
	files = map[string]string{
		"README.md": "# A model\n", "config.json": "{}\n", "empty.txt": "", "original/params.json": "[]\n",
		"model-00001-of-00003.safetensors": strings.Repeat("one", 1000), "model-00003-of-00003.safetensors": "three",
		"model-00002-of-00003.safetensors": strings.Repeat("two", 1001),
	}
	for name, text := range files {
		testkit.WriteFile(t, filepath.Join(dir, name), text)
	}
	testkit.WriteFile(t, filepath.Join(dir, ".cache/huggingface/x"), "hidden")
	testkit.WriteFile(t, filepath.Join(dir, ".hidden"), "hidden")
	testkit.WriteFile(t, filepath.Join(dir, "ignored.tmp"), "ignored")
	return dir, files
}

// A folder becomes a commit of a new, private repository. Files that are there are not sent again, and others are kept.
func TestPush(t *testing.T) {
	for _, part := range []int{0, 1000} {
		h := hubtest.New(t)
		h.Part = part
		dir, files := model(t)
		client := &hub.Client{Token: hubtest.Token}
		done, err := client.Push(t.Context(), h.URL, "acme/fixer", dir, "a model")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(files, h.Files); d != "" || !h.Private || done.Files != 7 || done.Bytes != 6008 || done.Commit == "" {
			t.Errorf("%+v, private: %v\n%s", done, h.Private, d)
		}
		n := len(h.Requests)
		if done, err = client.Push(t.Context(), h.URL, "acme/fixer", dir, "again"); err != nil || done != (hub.Pushed{}) {
			t.Errorf("%+v, %v", done, err)
		}
		if h.Commits != 1 || len(h.Requests) != n+2 {
			t.Errorf("nothing is new: %q", h.Requests[n:])
		}
		testkit.WriteFile(t, filepath.Join(dir, "README.md"), "# Another\n")
		h.Files["LICENSE"] = "of somebody"
		n = len(h.Requests)
		if done, err = client.Push(t.Context(), h.URL, "acme/fixer", dir, "again"); err != nil || done.Files != 1 {
			t.Errorf("%+v, %v", done, err)
		}
		if h.Files["LICENSE"] == "" || h.Files["README.md"] != "# Another\n" || len(h.Requests) != n+3 {
			t.Errorf("one file is new: %q", h.Requests[n:])
		}
	}
}

// A push that broke off continues with the same file, and makes no commit before all files are there.
func TestPushGoesOn(t *testing.T) {
	h := hubtest.New(t)
	h.Part = 1000
	dir, files := model(t)
	puts := map[string]int{}
	h.Fail = func(r *http.Request) int {
		if r.Method != http.MethodPut {
			return 0
		}
		puts[r.URL.Path]++
		if len(puts) == 6 {
			return http.StatusForbidden // the signature has expired
		}
		return 0
	}
	client := &hub.Client{Token: hubtest.Token}
	_, err := client.Push(t.Context(), h.URL, "acme/fixer", dir, "a model")
	if err == nil || !strings.Contains(err.Error(), "model-00002-of-00003.safetensors: part 3: PUT") ||
		strings.Contains(err.Error(), "secret") || h.Commits != 0 {
		t.Fatalf("%v, %d commits", err, h.Commits)
	}
	h.Fail = nil
	done, err := client.Push(t.Context(), h.URL, "acme/fixer", dir, "a model")
	if err != nil || done.Bytes != 3003+5 || cmp.Diff(files, h.Files) != "" {
		t.Errorf("%+v, %v", done, err)
	}
}

// Transient failures are retried.
func TestPushRetries(t *testing.T) {
	h := hubtest.New(t)
	dir, files := model(t)
	failed := map[string]bool{}
	h.Fail = func(r *http.Request) int {
		if key := r.Method + r.URL.Path; strings.Contains(key, "PUT") != failed[key] && len(failed) < 2 {
			failed[key] = true
			return http.StatusServiceUnavailable
		}
		return 0
	}
	if _, err := (&hub.Client{Token: hubtest.Token}).Push(t.Context(), h.URL, "a/b", dir, "a model"); err != nil ||
		cmp.Diff(files, h.Files) != "" || len(failed) == 0 {
		t.Errorf("%v, failed %v", err, failed)
	}
}

// The error of a refused push has the hub's message.
func TestPushRefused(t *testing.T) {
	dir, _ := model(t)
	h := hubtest.New(t)
	for _, c := range []struct {
		token, dir string
		fail       func(r *http.Request) int
		says       []string
	}{
		{"hf_other", dir, nil, []string{"401 Unauthorized", "Invalid username or password.", "HF_TOKEN"}},
		{hubtest.Token, filepath.Join(dir, "nowhere"), nil, []string{"no such file"}},
		{hubtest.Token, dir, func(r *http.Request) int {
			if strings.Contains(r.URL.Path, "/commit/") {
				return http.StatusPreconditionFailed
			}
			return 0
		}, []string{"POST /api/models/acme/fixer/commit/main", "412 Precondition Failed"}},
	} {
		h.Fail = c.fail
		_, err := (&hub.Client{Token: c.token}).Push(t.Context(), h.URL, "acme/fixer", c.dir, "a model")
		for _, want := range c.says {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hf_") {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	// A token may be allowed to write, but not to create repositories. The repository exists.
	h = hubtest.New(t)
	h.Repo = "acme/fixer"
	h.Fail = func(r *http.Request) int {
		if r.URL.Path == "/api/repos/create" {
			return http.StatusForbidden
		}
		return 0
	}
	if _, err := (&hub.Client{Token: hubtest.Token}).Push(t.Context(), h.URL, "acme/fixer", dir, "m"); err != nil {
		t.Error(err)
	}
}

// The requests equal those of huggingface_hub (2.4.0 when this was written) when it pushes the same folder.
func TestPushLikeHuggingFaceHub(t *testing.T) {
	python := os.Getenv("DEEPSWE_TEST_HUGGINGFACE_HUB")
	if python == "" {
		testkit.Skip(t, "huggingface_hub", "DEEPSWE_TEST_HUGGINGFACE_HUB is a Python with that package")
	}
	const script = `import sys
from huggingface_hub import HfApi
api = HfApi(endpoint=sys.argv[1], token="hf_secret")
api.create_repo("acme/fixer", private=True, exist_ok=True, repo_type="model")
api.upload_folder(repo_id="acme/fixer", folder_path=sys.argv[2], commit_message="a model", ignore_patterns=[".*", "*/.*"])
`
	dir, files := model(t)
	var said [2]map[string]bool
	for i := range said {
		h := hubtest.New(t)
		h.Part = 1000
		if i == 0 {
			if _, err := (&hub.Client{Token: hubtest.Token}).Push(t.Context(), h.URL, "acme/fixer", dir, "a model"); err != nil {
				t.Fatal(err)
			}
		} else {
			c := exec.CommandContext(t.Context(), python, "-c", script, h.URL, dir)
			c.Env = append(os.Environ(), "HF_HUB_DISABLE_XET=1", "HOME="+t.TempDir(), "HF_ENDPOINT="+h.URL)
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		if d := cmp.Diff(files, h.Files); d != "" || !h.Private {
			t.Fatalf("client %d, private: %v: %s", i, h.Private, d)
		}
		said[i] = map[string]bool{}
		for _, r := range h.Requests {
			head, body, _ := strings.Cut(r, "{")
			if strings.HasPrefix(r, "GET ") {
				continue // the package's own checks
			}
			if body != "" {
				var lines []string
				for line := range strings.Lines("{" + body) {
					var v any
					if err := json.Unmarshal([]byte(line), &v); err != nil {
						t.Fatal(err)
					}
					lines = append(lines, sortedText(v))
				}
				slices.Sort(lines)
				body = strings.Join(lines, "\n")
			}
			said[i][head+body] = true
		}
	}
	if d := cmp.Diff(slices.Sorted(maps.Keys(said[1])), slices.Sorted(maps.Keys(said[0]))); d != "" {
		t.Errorf("-huggingface_hub +deepswe\n%s", d)
	}
}

// sortedText returns a value as text in which the order of lists does not matter.
func sortedText(v any) string {
	switch v := v.(type) {
	case map[string]any:
		text := ""
		for _, key := range slices.Sorted(maps.Keys(v)) {
			text += key + ":" + sortedText(v[key]) + " "
		}
		return "{" + text + "}"
	case []any:
		var all []string
		for _, e := range v {
			all = append(all, sortedText(e))
		}
		slices.Sort(all)
		return fmt.Sprint(all)
	}
	return fmt.Sprint(v)
}
