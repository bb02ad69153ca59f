package pages

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepswe/rl"
	"deepswe/rl/train"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
)

const tiny = `
name: tiny
steps: 3
environment: {name: frozenlake, max_size: 4, radius: 2, max_tokens: 2, train_tasks: 3, validation_tasks: 5}
trainer: {name: embedded, hidden: 8}
rollouts: {tasks: 2, group: 3, workers: 2}
evaluate: {every: 2}
checkpoint: {every: 2}
`

// trainedRun makes a run.
func trainedRun(t *testing.T, set ...string) string {
	t.Helper()
	c, err := config.Load([]byte(tiny), builtin.Parts(), set...)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := train.Start(t.Context(), c, train.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// get returns a page.
func get(t *testing.T, h http.Handler, path string, want int) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	if w.Code != want {
		t.Fatalf("%s: %d, want %d: %.300s", path, w.Code, want, w.Body)
	}
	return w.Body.String()
}

// Every link of every page leads to a page.
func TestPages(t *testing.T) {
	t.Parallel()
	one, two := trainedRun(t), trainedRun(t, "seed=2", "optimizer.learning_rate=0.01")
	h, err := New(one, two)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for next := []string{"/"}; len(next) > 0; next = next[1:] {
		at := next[0]
		if _, ok := seen[at]; ok {
			continue
		}
		page := get(t, h, at, http.StatusOK)
		seen[at] = page
		if strings.HasSuffix(at, "/report") {
			continue
		}
		for _, m := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			base := httptest.NewRequestWithContext(t.Context(), http.MethodGet, at, nil).URL
			to, err := base.Parse(m[1])
			if err != nil {
				t.Fatal(err)
			}
			next = append(next, to.Path)
		}
	}
	// 2 runs with 3 steps of 2 groups of 3, their lists, tasks and reports, and the list of runs.
	if len(seen) != 1+2*(3+3+18) {
		t.Errorf("%d pages", len(seen))
	}
	for path, want := range map[string]string{
		"/": "optimizer.learning_rate", "/0/": `href="step/2"`, "/1/step/3": "trainer, step 3",
		"/0/step/1/000001.1/2": `title="token `, "/0/tasks": "lake-0000",
	} {
		if !strings.Contains(seen[path], want) {
			t.Errorf("%s does not have %q:\n%.2000s", path, want, seen[path])
		}
	}
	for _, path := range []string{"/2/", "/x/", "/0/step/9", "/0/step/x", "/0/step/1/000001.9/0", "/0/step/1/000001.0/7"} {
		get(t, h, path, http.StatusNotFound)
	}
	if alone, err := New(one); err != nil || strings.Contains(get(t, alone, "/", http.StatusOK), "Side by side") {
		t.Errorf("one run is compared: %v", err)
	}
	// Steps whose rollouts are not kept have no links.
	if err := os.RemoveAll(filepath.Join(one, "steps")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/0/", "/0/tasks"} {
		if page := get(t, h, path, http.StatusOK); strings.Contains(page, "step/") {
			t.Errorf("%s has links to rollouts that are gone", path)
		}
	}
}

// What a model wrote is text, and a run that has just begun has pages.
func TestPagesOfHostileAndEmptyRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/0/", "/0/tasks"} {
		get(t, h, path, http.StatusOK)
	}
	step := filepath.Join(dir, "steps", "000001")
	if err := os.MkdirAll(step, 0o755); err != nil {
		t.Fatal(err)
	}
	line := `{"task":"<b>","group":"000001.0","attempt":0,"reward":null,"stop_reason":"<i>","turns":[{"prompt_ids":[1],` +
		`"completion_ids":[2,3],"logprobs":[-1e308]}],"messages":[{"role":"user","content":"<script>x</script>"},` +
		`{"role":"assistant","content":"</pre><script>y</script>"}],"tries":2,"error":"<u>","times":{}}` + "\n" + `{"torn`
	if err := os.WriteFile(filepath.Join(step, "rollouts.jsonl"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/0/step/1", "/0/step/1/000001.0/0"} {
		page := get(t, h, path, http.StatusOK)
		if bad := regexp.MustCompile(`<(script|b>|i>|u>)`).FindString(page); bad != "" && bad != "<b>" {
			t.Errorf("%s has %s", path, bad)
		}
		if !strings.Contains(page, "&lt;") {
			t.Errorf("%s shows nothing of it", path)
		}
	}
}

// A rollout of several rows says where a new one begins, and counts what the environment added.
func TestTurns(t *testing.T) {
	t.Parallel()
	version := int64(7)
	turns := turnsOf(t.TempDir(), rl.Rollout{Turns: []rl.Turn{
		{PromptIDs: []int32{1, 2}, CompletionIDs: []int32{3}, Logprobs: []float64{-0.01}, PolicyVersion: &version},
		{PromptIDs: []int32{1, 2, 3, 4, 5}, CompletionIDs: []int32{6, 7}, Logprobs: []float64{-9, -1}},
		{PromptIDs: []int32{1, 9}, CompletionIDs: []int32{8}, Logprobs: []float64{0}},
	}})
	if len(turns) != 3 || turns[0].NewTokens != 2 || turns[1].NewTokens != 2 || turns[1].Split || !turns[2].Split ||
		turns[2].NewTokens != 1 || turns[0].Version != "7" || turns[1].Mean != -5 {
		t.Errorf("%+v", turns)
	}
	if a, b := turns[0].Tokens[0].Class, turns[1].Tokens[0].Class; a != "p0" || b != "p4" {
		t.Errorf("colours %s and %s", a, b)
	}
}
