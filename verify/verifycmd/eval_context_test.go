package verifycmd

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/agent/cli"
	"deepswe/agent/llm/llmtest"
	"deepswe/env/testkit"
	"deepswe/verify/rank/ranking"
	"deepswe/verify/swe"
)

// Attempts are made at each context length. Predictions, pass@k and the choice use the largest, and the reports compare
// them.
func TestEvalContexts(t *testing.T) {
	t.Parallel()
	testkit.Images(t, bookworm)
	tasks := repositories(t)
	endpoint := httptest.NewServer(&llmtest.Server{
		Answer: knowing(tasks, func(string, llmtest.Request) bool { return true }),
		Models: []llmtest.Model{{ID: "test-model", Context: 32768}},
	})
	defer endpoint.Close()
	out := filepath.Join(t.TempDir(), "run")
	args := []string{
		"eval", "--tasks", tasksFile, "--filter", "layered", "--context", "1k,32k", "--out", out,
		"--base-url", endpoint.URL + "/v1", "--format", "xml", "--verifier", "none",
	}
	got := deepswe(t, args...)
	if got.code != 0 {
		t.Fatalf("exit code %d\n%s%s", got.code, got.out, got.errOut)
	}
	var r swe.EvaluationReport
	if err := readReport(filepath.Join(out, swe.ReportFile), &r); err != nil {
		t.Fatal(err)
	}
	if r.Attempts != 1 || r.Solved != 1 || len(r.PassAtK) != 1 || len(r.Contexts) != 2 {
		t.Fatalf("%+v", r)
	}
	if a, b := r.Contexts[0], r.Contexts[1]; a.Context != 1024 || a.Solved != 0 || a.Full != 1 || b.Context != 32768 ||
		b.Solved != 1 || b.Full != 0 || b.PassAtK[0].Rate != 1 {
		t.Errorf("%+v", r.Contexts)
	}
	for _, line := range []string{"context      1k  0 solved of 1, pass@1 0.0%", "context     32k  1 solved of 1, pass@1 100.0%"} {
		if !strings.Contains(got.out, line) {
			t.Errorf("standard output lacks %q:\n%s", line, got.out)
		}
	}
	page, err := os.ReadFile(filepath.Join(out, "rank", ranking.PageFile))
	if err != nil || !strings.Contains(string(page), "Solved tasks by context length") {
		t.Errorf("the page has no figure: %v", err)
	}
	again := deepswe(t, "eval", "--resume", "--out", out, "--json", "--base-url", endpoint.URL+"/v1")
	if again.code != 0 || strings.Contains(again.out, `"type":"rollout"`) {
		t.Errorf("exit code %d\n%s%s", again.code, again.out, again.errOut)
	}
	args[6], args[8] = "1k,64k", out+"2"
	if got := deepswe(t, args...); got.code != cli.ExitUsage || !strings.Contains(got.errOut, "takes 32768 tokens at most") {
		t.Errorf("exit code %d, %s", got.code, got.errOut)
	}
}
