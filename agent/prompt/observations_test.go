package prompt

import (
	"strings"
	"testing"
)

func TestObservationsOfAPack(t *testing.T) {
	t.Parallel()
	const rest = "instance_prompt: 'Fix: {problem_statement}'\n"
	for setting, want := range map[string]string{"": "", "observations: tool_response\n": "tool_response"} {
		if p, err := Parse("p", []byte(setting+rest)); err != nil || p.Observations != want {
			t.Errorf("%q: %q, %v", setting, p.Observations, err)
		}
	}
	_, err := Parse("p", []byte("observations: <result>\n"+rest))
	if err == nil || !strings.Contains(err.Error(), "line 1: observations must be tool_response") {
		t.Errorf("error = %v", err)
	}
}
