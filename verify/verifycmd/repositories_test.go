package verifycmd

import (
	"testing"

	"deepswe/verify"
)

// Each of the small repositories is solved by its solution, and not by an empty patch.
func TestRepositories(t *testing.T) {
	t.Parallel()
	e := verify.Evaluator{Provider: openDocker(t, bookworm), Run: "test-repositories"}
	for _, task := range repositories(t) {
		t.Run(task.ID, func(t *testing.T) {
			for _, tc := range []struct {
				name   string
				patch  string
				status verify.Status
				reward float64
			}{{"gold", task.Tests.GoldPatch, verify.Resolved, 1}, {"empty", "", verify.Unresolved, 0}} {
				v, err := e.Evaluate(t.Context(), task, []byte(tc.patch))
				if err != nil {
					t.Fatal(err)
				}
				if v.Status != tc.status || v.Reward != tc.reward || v.InfraReason != "" {
					t.Errorf("%s: %s, reward %v, %s, %s, %v, want %s, reward %v\n%s", tc.name, v.Status, v.Reward, v.InfraReason,
						v.Detail,
						v.Suspicious, tc.status, tc.reward, v.Log)
				}
				t.Logf("%s: %.1f s, %+v", tc.name, v.Seconds, v.Confirmation)
				if tc.name == "empty" && (len(v.Broken) > 0 || len(v.Fixed) > 0) {
					t.Errorf("without a patch, %q pass that should not, and %q do not pass that should", v.Fixed, v.Broken)
				}
			}
		})
	}
}
