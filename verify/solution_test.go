package verify

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Solution returns the files of a solution that count in a strict run.
func TestSolution(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		gold []byte
		want map[string][]byte
	}{
		{"a change and a new file", gitDiff(t, wrongAnswer, with(wrongAnswer, "answer", "42\n", "lib/new.sh", "x=1\n")),
			map[string][]byte{"answer": []byte("42\n"), "lib/new.sh": []byte("x=1\n")}},
		{"a file that goes", gitDiff(t, wrongAnswer, with(wrongAnswer, "answer", "42\n", "docs/free", "")),
			map[string][]byte{"answer": []byte("42\n")}},
		{"what a patch may not change", gitDiff(t, wrongAnswer, with(wrongAnswer, "answer", "42\n", "conftest.py", "x=1\n",
			"tests/known", "check known 1 1\n")), map[string][]byte{"answer": []byte("42\n")}},
		{"another repository", gitDiff(t, with(wrongAnswer, "answer", "1\n"), with(wrongAnswer, "answer", "2\n")), nil},
	} {
		task := wrongAnswerTask()
		task.Tests.GoldPatch = string(tc.gold)
		e := Evaluator{Provider: newScratch(t, wrongAnswer)}
		got, err := e.Solution(t.Context(), task)
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", tc.name, err, diff)
		}
	}
}
