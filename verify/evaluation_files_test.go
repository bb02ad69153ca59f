package verify

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"deepswe/verify/testlog"
)

func TestSaveAndLoad(t *testing.T) {
	t.Parallel()
	task := wrongAnswerTask()
	p := newScratch(t, wrongAnswer)
	e := Evaluator{Provider: p}
	for _, tc := range []struct {
		name  string
		patch []byte
		files []string
	}{
		{"resolved", gitDiff(t, wrongAnswer, with(wrongAnswer, "answer", "42\n")),
			[]string{"eval.sh", "evaluation.json", "patch.diff", "report.json", "run_instance.log", "strict_output.txt",
				"test_output.txt"}},
		{"patch failed", []byte("<no & patch>"), []string{"eval.sh", "evaluation.json", "patch.diff", "run_instance.log"}},
		{"no patch", nil, []string{"eval.sh", "evaluation.json", "report.json", "run_instance.log"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "deep", "er")
			if _, err := Load(dir, task); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Load of nothing: %v", err)
			}
			v, err := e.Evaluate(t.Context(), task, tc.patch)
			if err != nil {
				t.Fatal(err)
			}
			// Files of an earlier evaluation must not be taken for this one's.
			writeFile(t, filepath.Join(dir, LogFile), "old")
			writeFile(t, filepath.Join(dir, ReportFile), "old")
			if err := v.Save(dir, task, tc.patch); err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			if !slices.Equal(names, tc.files) {
				t.Errorf("files %q, want %q", names, tc.files)
			}
			back, err := Load(dir, task)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(v, back, cmpopts.EquateEmpty(), cmp.AllowUnexported(testlog.Results{}),
				cmpopts.IgnoreTypes(&testlog.Results{})); diff != "" {
				t.Errorf("loaded (-saved +loaded):\n%s", diff)
			}
			data, err := os.ReadFile(filepath.Join(dir, EvaluationFile))
			if err != nil || bytes.Contains(data, []byte(`\u00`)) {
				t.Errorf("evaluation.json escapes what it need not: %v\n%s", err, data)
			}
		})
	}
}
