package pages

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deepswe/agent/run"
	"deepswe/env/testkit"
	"deepswe/rl"
	"deepswe/rl/metrics"
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

// trainedRun trains a small run and returns its directory.
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

// get requests a page, checks its status and returns it.
func get(t testing.TB, h http.Handler, path string, want int) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	if w.Code != want {
		t.Fatalf("%s: %d, want %d: %.300s", path, w.Code, want, w.Body)
	}
	return w.Body.String()
}

// crawl follows every link from the first page, and returns the pages by address.
func crawl(t *testing.T, h http.Handler) map[string]string {
	t.Helper()
	seen := map[string]string{}
	for next := []string{"/"}; len(next) > 0; next = next[1:] {
		at := next[0]
		if _, ok := seen[at]; ok {
			continue
		}
		page := get(t, h, at, http.StatusOK)
		seen[at] = page
		for _, m := range regexp.MustCompile(`(?:href|data-load|src)="([^"#]+)"`).FindAllStringSubmatch(page, -1) {
			base := httptest.NewRequestWithContext(t.Context(), http.MethodGet, at, nil).URL
			to, err := base.Parse(html.UnescapeString(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			if !to.Query().Has("sort") {
				next = append(next, to.RequestURI())
			}
		}
	}
	return seen
}

// handler returns the handler for runs in these directories.
func handler(t testing.TB, paths ...string) *Handler {
	t.Helper()
	h, err := New(Options{Paths: paths})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Every link on every page of training runs leads to a page.
func TestTrainingRuns(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	one, two := filepath.Join(parent, "one"), filepath.Join(parent, "two")
	for dir, set := range map[string][]string{one: nil, two: {"seed=2", "optimizer.learning_rate=0.01"}} {
		if err := os.Rename(trainedRun(t, set...), dir); err != nil {
			t.Fatal(err)
		}
	}
	h := handler(t, one, two)
	seen := crawl(t, h)
	// The list of runs and two files; for each run its page and its tasks, 3 steps, and 18 rollouts in 2 groups of 3 a
	// step.
	if len(seen) != 1+2+2*(2+3+18) {
		t.Errorf("%d pages", len(seen))
	}
	for path, want := range map[string]string{
		"/": `name="run" value="two"`, "/one/": `href="step/2"`, "/two/step/3": "trainer, step 3",
		"/one/rollout?attempt=2&group=000001.1&step=1": `title="token `, "/one/tasks": "lake-0000",
	} {
		if !strings.Contains(seen[path], want) {
			t.Errorf("%s does not have %q:\n%.2000s", path, want, seen[path])
		}
	}
	if page := get(t, h, "/-/compare?run=one&run=two", http.StatusOK); !strings.Contains(page, "optimizer.learning_rate") {
		t.Errorf("the comparison does not have the configurations' difference:\n%s", page)
	}
	for _, path := range []string{
		"/three/", "/one/step/9", "/one/step/x", "/one/rollout?step=1&group=000001.9&attempt=0",
		"/-/compare?run=three&run=one",
		"/one/rollout?step=1&group=000001.0&attempt=7", "/one/rollout", "/one/ranking", "/one/task?name=x",
	} {
		get(t, h, path, http.StatusNotFound)
	}
	// If the rollouts of the steps are not kept, there are no links to them.
	if err := os.RemoveAll(filepath.Join(one, "steps")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/one/", "/one/tasks"} {
		if page := get(t, h, path, http.StatusOK); strings.Contains(page, `href="step/`) {
			t.Errorf("%s has links to rollouts that are gone", path)
		}
	}
	for _, path := range []string{"/one/step/2", "/one/rollout?attempt=2&group=000001.1&step=1"} {
		if page := get(t, h, path, http.StatusNotFound); !strings.Contains(page, "rollouts.keep_logs") {
			t.Errorf("%s does not say why the rollouts are gone:\n%s", path, page)
		}
	}
}

// Passes over demonstrations have no row in the table of steps, unless a policy was measured before them.
func TestStepsOfTraining(t *testing.T) {
	t.Parallel()
	point := func(step int, values map[string]float64) metrics.Point {
		return metrics.Point{Step: step, Values: values}
	}
	rows := stepsOfTraining([]metrics.Point{
		point(-3, map[string]float64{"imitation/loss": 2, "val/pass@1": 0.1}),
		point(-2, map[string]float64{"imitation/loss": 1}), point(-1, map[string]float64{"imitation/loss": 0.5}),
		point(0, map[string]float64{"val/pass@1": 0.5}),
		point(1, map[string]float64{"reward/mean": 0.6}),
	}, []int{2})
	var steps []int
	for _, r := range rows {
		steps = append(steps, r.Step)
	}
	if want := []int{2, 1, 0, -3}; !slices.Equal(steps, want) {
		t.Errorf("rows of the steps %v, want %v", steps, want)
	}
}

// Every link on every page of an evaluation leads to a page, and filters and sort orders work.
func TestEvaluation(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	sample{model: "Qwen3-32B", tasks: 5, k: 2, skill: .5}.write(t, filepath.Join(parent, "large"))
	sample{model: "Qwen3-8B", tasks: 5, k: 2, skill: .3}.write(t, filepath.Join(parent, "small"))
	h := handler(t, parent)
	seen := crawl(t, h)
	if len(seen) < 40 {
		t.Errorf("%d pages", len(seen))
	}
	first := "group=django__django-11000&attempt=0"
	for path, wants := range map[string][]string{
		"/":                                     {"Qwen3-32B", "23.7 to 76.3", "Compare the ticked runs"},
		"/large/":                               {"pass@1", "django__django-11000", "Why attempts ended"},
		"/large/?by=task":                       {"5 of 5", `class="cell`},
		"/large/log?" + first:                   {"test log", `id="L1"`},
		"/large/failures":                       {"test_delta.py::test_december", "max context"},
		"/-/compare?run=large&run=small":        {"McNemar p", "points of pass@1"},
		"/large/rollout?" + first:               {`class="add"`, `<i class="kw">return</i>`, "patch"},
		"/large/task?name=django__django-11000": {"Months between two dates", "#0", "#1", "gold=1"},
		"/large/task?name=django__django-11000&gold=1":   {"The dataset cannot be read"},
		"/large/rollout?" + first + "&fragment=23&patch": {"+3</span>", "of the year before", "Made of the editor"},
		"/large/rollout?" + first + "&fragment=3&patch":  {"leave nothing changed"},
		"/large/rollout?" + first + "&find=Now+the":      {"steps without it are left out"},
	} {
		page := get(t, h, path, http.StatusOK)
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s does not have %q:\n%.3000s", path, want, page)
			}
		}
	}
	for filter, want := range map[string]string{
		"repo:django": "1 to 2 of 2", "sympy": "1 to 2 of 2", "attempt:1": "1 to 5 of 5", "-attempt:1": "1 to 5 of 5",
		"attempt:<1 -repo:django/django": "1 to 4 of 4", "is:failed": "None", "steps:>1000": "None",
		"suspicious:no": "1 to 10 of 10",
	} {
		path := "/large/?q=" + url.QueryEscape(filter)
		if page := get(t, h, path, http.StatusOK); !strings.Contains(page, want) {
			t.Errorf("the filter %q does not leave %s", filter, want)
		}
	}
	link := regexp.MustCompile(`class="go" href="([^"]*)"`)
	up := link.FindStringSubmatch(get(t, h, "/large/?sort=steps", http.StatusOK))
	down := link.FindStringSubmatch(get(t, h, "/large/?sort=-steps", http.StatusOK))
	if up[1] == down[1] {
		t.Errorf("both orders begin with %s", up[1])
	}
}

// A ranking, inside its run or alone, shows the scores of the candidates and why one was chosen. So do the pages of its
// tasks.
func TestRankingPages(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	s := sample{model: "m", tasks: 3, k: 2, skill: .5}
	s.rank(t, s.write(t, filepath.Join(parent, "run")), filepath.Join(parent, "alone"))
	h := handler(t, parent)
	reason := "passes 2 of 2 regression tests"
	for path, wants := range map[string][]string{
		"/":              {"alone", "3 of 3", "candidates of"},
		"/run/ranking":   {reason, "0.912", "0.407", "fails a regression test", `class="chosen"`, "hybrid"},
		"/alone/ranking": {reason, "0.912", "Candidate"},
		"/alone/": {
			`<tr class="chosen"><td><a class="go" href="rollout?attempt=0&amp;group=django__django-11000"`, "0.912", "3 of 3",
			`href="?sort=-score"`, "1 to 6 of 6",
		},
		"/run/":                          {`<tr class="chosen">`, `<td class="n">0.407`},
		"/alone/?q=chosen:yes":           {"1 to 3 of 3"},
		"/alone/?q=score:<0.5":           {"1 to 3 of 3"},
		"/alone/?by=task":                {`cell solved chosen`},
		"/alone/rollout?" + firstRollout: {`id="s3"`, `class="add"`},
		"/alone/failures":                {"3 attempts have not solved"},
		"/run/task?name=django__django-11000": {
			"Chosen: " + reason, "judge 0.912", "passes 2 regression, 1 reproduction", "fails a regression test",
		},
	} {
		page := get(t, h, path, http.StatusOK)
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s does not have %q:\n%.3000s", path, want, page)
			}
		}
	}
	get(t, h, "/alone/task?name=x", http.StatusNotFound)
	// A ranking whose run is gone still lists its candidates.
	if err := os.Rename(filepath.Join(parent, "run"), filepath.Join(parent, "moved")); err != nil {
		t.Fatal(err)
	}
	h = handler(t, filepath.Join(parent, "alone"))
	if page := get(t, h, "/alone/", http.StatusOK); !strings.Contains(page, `class="go" href="task?name=django`) ||
		!strings.Contains(page, "1 to 6 of 6") || strings.Contains(page, "rollout?") {
		t.Errorf("of candidates without their run the page says\n%s", page)
	}
	crawl(t, h)
}

// In a run with several context lengths, the candidates are those with the run's own length.
func TestRankingOfContexts(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	s := sample{model: "m", tasks: 2, k: 2, skill: .5, context: 16384}
	s.rank(t, s.write(t, filepath.Join(parent, "run")), filepath.Join(parent, "alone"))
	page := get(t, handler(t, parent), "/alone/", http.StatusOK)
	if !strings.Contains(page, `<tr class="chosen">`) || strings.Contains(page, "16384") {
		t.Errorf("the candidates are those of another context:\n%s", page)
	}
}

// A run of solve shows its conversation, its patch, how it was tested, and the commands that can follow.
func TestSolvePage(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := sample{model: "m", tasks: 1, k: 1, skill: 1, kind: run.Solve}.write(t, filepath.Join(parent, "run one"))
	d, err := run.Open(dir, run.Solve)
	if err != nil {
		t.Fatal(err)
	}
	how := map[string]string{"text": "fixed and verified: 3 passed"}
	if err := errors.Join(d.Note("verified", how), d.Close()); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, filepath.Join(dir, "rollouts", "django__django-11000", "0", "test-base.log"), "1 FAILED")
	page := html.UnescapeString(get(t, handler(t, parent), "/run%20one/", http.StatusOK))
	for _, want := range []string{
		"fixed and verified: 3 passed", "tests before the patch", `class="add"`, "deepswe apply '" + dir + "'",
		"deepswe branch '" + dir + "' NAME", "deepswe pr '" + dir + "'", "deepswe solve --continue '" + dir + "'",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q:\n%.4000s", want, page)
		}
	}
}

// An address may name a range of steps, which then applies to the curves and to the table.
func TestSpanOfSteps(t *testing.T) {
	t.Parallel()
	h := handler(t, trainedRun(t))
	page := get(t, h, "/run/?from=2&to=2", http.StatusOK)
	if !strings.Contains(page, `href="step/2"`) || strings.Contains(page, `href="step/1"`) ||
		!strings.Contains(page, "Steps 2 to 2") || strings.Contains(page, "step 3:") {
		t.Errorf("not step 2 alone:\n%.3000s", page)
	}
	words := "6 rollouts in 2 groups: none solves its task in "
	if page := get(t, h, "/run/step/1", http.StatusOK); !strings.Contains(page, words) {
		t.Errorf("the page of a step says nothing in words:\n%.2000s", page)
	}
}

// If a run's page would be too large, its long texts are shortened, and the page says so.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	testkit.SkipUnderRace(t)
	var noise strings.Builder
	for line := make([]byte, 60); noise.Len() < 4<<20; {
		_, _ = rand.Read(line) // which never fails
		noise.WriteString(base64.StdEncoding.EncodeToString(line) + "\n")
	}
	s := sample{model: "m", tasks: 12, k: 5, skill: .5, length: 40, long: 10_000, source: noise.String()}
	dir := s.write(t, filepath.Join(t.TempDir(), "run"))
	var page bytes.Buffer
	if err := handler(t, dir).WriteFile(&page, dir); err != nil {
		t.Fatal(err)
	}
	if page.Len() > 20_000_000 || !strings.Contains(page.String(), "Of texts with more than 6000 bytes") {
		t.Errorf("the page has %d bytes", page.Len())
	}
}

// What a model or a repository wrote is shown as text on every page.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	testkit.SkipUnderRace(t)
	parent := t.TempDir()
	hostile := "<script>alert(1)</script></pre><img src=x onerror=alert(2)>\x1b[31mred\x1b]0;title\x07\u202egnp.exe\x00" +
		strings.Repeat("x", 1<<20)
	s := sample{model: "m", tasks: 1, k: 1, hostile: hostile}
	s.rank(t, s.write(t, filepath.Join(parent, "<b>run")), filepath.Join(parent, "ranked"))
	h := handler(t, parent)
	for at, page := range crawl(t, h) {
		if strings.HasPrefix(at, "/-/") {
			continue
		}
		if bad := regexp.MustCompile(`<script>|<img|<b>run|\x1b|\x{202e}|\x00`).FindString(page); bad != "" {
			t.Errorf("%s has %q", at, bad)
		}
		if len(page) > 1<<20 {
			t.Errorf("%s has %d bytes", at, len(page))
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	p := w.Header().Get("Content-Security-Policy")
	if strings.Contains(p, "unsafe") || !strings.Contains(p, "default-src 'none'") {
		t.Errorf("the policy is %q", p)
	}
}

// A run that has just begun, has a torn log or vanishes has pages that say so.
func TestUnfinishedRuns(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	h := handler(t, parent)
	if page := get(t, h, "/", http.StatusOK); !strings.Contains(page, "deepswe solve --demo") {
		t.Errorf("without a run, the page does not say what to do:\n%s", page)
	}
	dir := sample{model: "m", tasks: 2, k: 1, open: true}.write(t, filepath.Join(parent, "run"))
	at := filepath.Join(dir, "rollouts", "new__task-1", "0")
	if err := os.CopyFS(at, os.DirFS(filepath.Join(dir, "rollouts", "django__django-11000", "0"))); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(at, "steps.jsonl")
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, log, string(text[:len(text)*2/3]))
	for path, want := range map[string]string{
		"/": "live", "/run/": "playing", "/run/rollout?group=new__task-1&attempt=0": `id="s2"`,
	} {
		if page := get(t, h, path, http.StatusOK); !strings.Contains(page, want) {
			t.Errorf("%s does not have %q", path, want)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if page := get(t, h, "/run/", http.StatusNotFound); !strings.Contains(page, "no longer there") {
		t.Errorf("of a run that is gone the page says\n%s", page)
	}
}

// A run of another version, or with torn files, is listed and has a page that says what is wrong.
func TestUnreadableRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text string
		status     int
		want       string
	}{
		"of a later version": {
			"manifest.json", `{"version":99,"kind":"eval","program":"deepswe 9"}`, http.StatusInternalServerError, "use a newer deepswe",
		},
		"of the first version": {
			"manifest.json", `{"version":1,"kind":"eval","program":"deepswe 0","flags":{"model":"m"}}`, http.StatusOK, "1 to 2 of 2",
		},
		"of an unknown version": {"manifest.json", `{}`, http.StatusInternalServerError, "not the manifest of a run"},
		"torn":                  {"manifest.json", `{"version":2,"ki`, http.StatusInternalServerError, "manifest.json"},
		"empty":                 {"manifest.json", "", http.StatusInternalServerError, "manifest.json"},
		"with torn events":      {"events.jsonl", "\x00\xff{\n{}\n{\"torn", http.StatusInternalServerError, "events.jsonl"},
		"with a torn ranking":   {"rank/ranking.json", `{"type":"ranking","results":[{`, http.StatusInternalServerError, "ranking.json"},
		"with a torn ranking alone": {
			"ranking.json", `{"type":"ranking","results":[{`, http.StatusInternalServerError, "ranking.json",
		},
		"with garbage beside": {"tasks.json", "\x00", http.StatusOK, "1 to 2 of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			dir := sample{model: "m", tasks: 2, k: 1}.write(t, filepath.Join(parent, "run"))
			if c.file == "ranking.json" {
				if err := os.Remove(filepath.Join(dir, "manifest.json")); err != nil {
					t.Fatal(err)
				}
			}
			testkit.WriteFile(t, filepath.Join(dir, c.file), c.text)
			h := handler(t, parent)
			for _, path := range []string{"/run/", "/run/task?name=django__django-11000", "/run/failures"} {
				page := get(t, h, path, c.status)
				if (path == "/run/" || c.status != http.StatusOK) && !strings.Contains(page, c.want) {
					t.Errorf("%s does not say %q:\n%s", path, c.want, page)
				}
			}
			list := get(t, h, "/", http.StatusOK)
			if !strings.Contains(list, `href="/run/"`) || c.status != http.StatusOK && !strings.Contains(list, c.want) {
				t.Errorf("the list does not say %q:\n%s", c.want, list)
			}
			if c.status == http.StatusOK {
				crawl(t, h)
			}
		})
	}
}

// What a model wrote in training is shown as text, and a run that has just begun has pages.
func TestHostileTraining(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	d, err := run.Create(dir, run.Manifest{Kind: run.Train})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	h := handler(t, dir)
	for _, path := range []string{"/", "/run/", "/run/tasks"} {
		get(t, h, path, http.StatusOK)
	}
	line := `{"task":"<b>","group":"000001.0","attempt":0,"reward":null,"stop_reason":"<i>","turns":[{"prompt_ids":[1],` +
		`"completion_ids":[2,3],"logprobs":[-1e308]}],"messages":[{"role":"user","content":"<script>x</script>"},` +
		`{"role":"assistant","content":"</pre><script>y</script>"}],"tries":2,"error":"<u>","times":{}}` + "\n" + `{"torn`
	step := filepath.Join(dir, "steps", "000001")
	if err := os.MkdirAll(step, 0o755); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, filepath.Join(step, "rollouts.jsonl"), line)
	for _, path := range []string{"/run/step/1", "/run/rollout?step=1&group=000001.0&attempt=0"} {
		page := get(t, h, path, http.StatusOK)
		if bad := regexp.MustCompile(`<script>|<i>|<u>`).FindString(page); bad != "" {
			t.Errorf("%s has %s", path, bad)
		}
		if !strings.Contains(page, "&lt;") {
			t.Errorf("%s shows nothing of it", path)
		}
	}
}

// A rollout of several rows shows where each begins, and counts the tokens that the environment added.
func TestTurns(t *testing.T) {
	t.Parallel()
	version := int64(7)
	turns := turnsOf(rl.Rollout{Turns: []rl.Turn{
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

// Advantages are computed with the algorithm of the step's own stage.
func TestAlgorithmOfAStage(t *testing.T) {
	t.Parallel()
	dir := trainedRun(t, "steps=3", "stages=[{from: 2, set: {baseline: mean}}]")
	for step, want := range map[int]rl.Baseline{1: rl.LeaveOneOut, 2: rl.Mean, 3: rl.Mean, 4: rl.Mean} {
		if a, err := algorithmOf(dir, step); err != nil || a.Baseline != want {
			t.Errorf("step %d: %v, %v: want %s", step, a, err, want)
		}
	}
}
