package train

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent"
	"deepswe/env/disk"
	"deepswe/env/testkit"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
)

// worker looks around, writes a number and submits. The number is 7, the right one, if its attempt is in Right.
type worker struct {
	Right []string
	Look  string

	mu sync.Mutex
	// begun is how many replies the rollouts of a group had when they first asked the model.
	begun map[string]int
}

func (w *worker) Complete(_ context.Context, r agent.Request) (agent.Reply, error) {
	group, index := r.Rollout[:strings.Index(r.Rollout, "/")], r.Rollout[len(r.Rollout)-1:]
	said := slices.DeleteFunc(slices.Clone(r.Messages), func(m agent.Message) bool {
		return m.Role != agent.RoleAssistant
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.begun[group]; !ok {
		w.begun[group] = len(said)
	}
	number := 8
	if slices.Contains(w.Right, index) {
		number = 7
	}
	texts := []string{
		call("execute_bash", "cmd", w.Look), call("execute_bash", "cmd", fmt.Sprintf("echo %d > number", number)),
		call("finish", "command", "submit"),
	}
	return agent.Reply{
		Message: agent.Message{Role: agent.RoleAssistant, Content: texts[len(said)]}, FinishReason: "stop",
		Tokens: &agent.Sample{
			PromptIDs: make([]int32, 10*len(r.Messages)), CompletionIDs: []int32{0, 0}, Logprobs: []float64{-1, -1},
		},
	}, nil
}

// prefixed trains on one task with groups of four.
func prefixed(t *testing.T, dir string, w *worker, set ...string) Result {
	t.Helper()
	if w.begun == nil {
		w.begun = map[string]int{}
	}
	r, err := sweRun(t, dir, w, append([]string{
		"environment.train.slice=:1", "environment.validation_share=0", "evaluate.every=0", "rollouts.tasks=1",
		"rollouts.group=4", "prefix.on=true", "prefix.slack=0.1", "steps=4",
	}, set...)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func metric(r Result, name string) (values []float64) {
	for _, p := range r.Points {
		values = append(values, p.Values[name])
	}
	return values
}

// If most rollouts fail, the next group continues longer and longer prefixes of the one that solved the task, until a
// prefix contains the solution. If most solve it, the next group continues a failed one. Replaying the calls restores
// the files in the new sandboxes, and only newly sampled tokens are trained.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, kind  string
		right       []string
		rates, want []float64
		begun       map[string]int
	}{
		// Of three replies, the prefix has 1/4, then 1/2, and then 1/4 again, because all that continued the half
		// solved the task.
		{"success", "success", []string{"1"}, []float64{0, 0.25, 1, 0.25}, []float64{0.25, 0, 0, 0},
			map[string]int{"000001.0": 0, "000002.0": 1, "000003.0": 2, "000004.0": 1}},
		{"failure", "failure", []string{"0", "1", "3"}, []float64{0, 0.75, 0, 0.75}, []float64{0.75, 0, 0, 0},
			map[string]int{"000001.0": 0, "000002.0": 1, "000003.0": 2, "000004.0": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, w := filepath.Join(t.TempDir(), "run"), &worker{Right: c.right, Look: "ls"}
			r := prefixed(t, dir, w)
			if !maps.Equal(w.begun, c.begun) {
				t.Errorf("rollouts began after %v replies, want %v", w.begun, c.begun)
			}
			if got := metric(r, "prefix/rate/"+c.kind); !slices.Equal(got, c.rates) {
				t.Errorf("with a prefix, the rates were %v, want %v", got, c.rates)
			}
			if got := metric(r, "prefix/rate/start"); !slices.Equal(got, c.want) {
				t.Errorf("without a prefix, the rates were %v, want %v", got, c.want)
			}
			if got := metric(r, "tokens/trained"); !slices.Equal(got, []float64{4 * 6, 4 * 4, 4 * 2, 4 * 4}) {
				t.Errorf("%v tokens were trained: want two for each reply that was not replayed", got)
			}
			if got := metric(r, "prefix/replies"); !slices.Equal(got, []float64{0, 1, 2, 1}) {
				t.Errorf("%v replies were replayed, want [0 1 2 1]", got)
			}
			chosen, err := os.ReadFile(filepath.Join(dir, tasksFile))
			file := fmt.Sprintf("000001.0-%d.jsonl", map[string]int{"success": 1, "failure": 2}[c.kind])
			if err != nil || bytes.Count(chosen, []byte(`"prefix":{"file":"`+file+`"`)) != 3 {
				t.Errorf("groups\n%s%v", chosen, err)
			}
		})
	}
}

// A rollout whose replayed calls give another result has no reward, and that prefix is not used again.
func TestPrefixThatDiffers(t *testing.T) {
	t.Parallel()
	w := &worker{Right: []string{"1"}, Look: "cat /proc/sys/kernel/random/uuid"}
	r := prefixed(t, filepath.Join(t.TempDir(), "run"), w)
	// The share is one half at the fourth step, because the third began without a prefix.
	if got := metric(r, "prefix/differs"); !slices.Equal(got, []float64{0, 4, 0, 4}) {
		t.Errorf("%v rollouts differed, want [0 4 0 4]", got)
	}
	if got := metric(r, "rollouts/no_reward"); !slices.Equal(got, []float64{0, 4, 0, 4}) {
		t.Errorf("%v have no reward, want [0 4 0 4]", got)
	}
	if want := map[string]int{"000001.0": 0, "000003.0": 0}; !maps.Equal(w.begun, want) {
		t.Errorf("rollouts asked the model after %v replies, want %v", w.begun, want)
	}
}

// A resumed run continues the same prefixes as an uninterrupted one, and keeps no others.
func TestResumeWithPrefixes(t *testing.T) {
	t.Parallel()
	tasks := testkit.WriteFile(t, filepath.Join(t.TempDir(), "tasks.jsonl"), fmt.Sprintf(sweTask, "task")+"\n")
	var states [2]state
	for i, stops := range [][]string{{"steps=5"}, {"steps=1", "steps=3", "steps=5"}} {
		dir, w := filepath.Join(t.TempDir(), "run"), &worker{Right: []string{"2"}, Look: "ls"}
		for _, steps := range stops {
			prefixed(t, dir, w, steps, "checkpoint.every=2", "environment.train.path="+tasks)
		}
		if err := disk.ReadJSON(filepath.Join(dir, record.StateFile), &states[i]); err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadDir(filepath.Join(dir, prefixesDir))
		if err != nil || len(kept) == 0 || len(kept) > 4 {
			t.Errorf("%d beginnings are kept: %v", len(kept), err)
		}
	}
	if d := cmp.Diff(states[0].Curriculum.Tasks, states[1].Curriculum.Tasks, cmp.AllowUnexported(knowledge{})); d != "" {
		t.Errorf("what is known of the tasks (-undisturbed +resumed):\n%s", d)
	}
}

func TestPrefixesAreRefused(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"steps=1":       "prefix.on: rollouts of this environment cannot be played again", // a game
		"prefix.step=0": "want a step above 0", "prefix.most=0.1": "most not below it",
		"prefix.slack=0.5": "prefix.slack is 0.5: want 0 to 0.499", "prefix.most=1.5": "prefix.most is 1.5: want 0 to 1",
	} {
		if _, err := config.Load([]byte(tiny), builtin.Parts(), "prefix.on=true", set); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
}
