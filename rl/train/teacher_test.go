package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/agent/llm/llmtest"
	"deepswe/env/disk"
	"deepswe/rl"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
)

// student answers like the fake vLLM, but gives each token a log-probability of -0.25.
type student struct{ *llm.Client }

func (s student) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	reply, err := s.Client.Complete(ctx, r)
	if err == nil {
		own := *reply.Tokens
		own.Logprobs = slices.Repeat([]float64{-0.25}, len(own.CompletionIDs))
		reply.Tokens = &own
	}
	return reply, err
}

// endpoint serves the fake vLLM, whose answers edit may change.
func endpoint(t *testing.T, edit func(path string, answer map[string]any)) string {
	t.Helper()
	fake := &llmtest.Server{TakesTokens: true, Answer: func(llmtest.Request) llmtest.Reply {
		return llmtest.Text(call("finish", "command", "submit"))
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if edit == nil {
			fake.ServeHTTP(w, r)
			return
		}
		recorded := httptest.NewRecorder()
		fake.ServeHTTP(recorded, r)
		answer := map[string]any{}
		d := json.NewDecoder(recorded.Body)
		d.UseNumber()
		if err := d.Decode(&answer); err != nil {
			t.Error(err)
		}
		edit(r.URL.Path, answer)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(recorded.Code)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

func taught(t *testing.T, dir, url string, set ...string) (Result, error) {
	t.Helper()
	policy, err := llm.New(llm.Options{BaseURL: endpoint(t, nil), Continue: llm.Extend})
	if err != nil {
		t.Fatal(err)
	}
	return sweRun(t, dir, student{policy}, append([]string{"steps=1", "evaluate.every=0", "teacher.url=" + url}, set...)...)
}

// The advantage of each sampled token is the teacher's log-probability minus the student's, scaled and clipped.
func TestTeacher(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		set        []string
		scale, max float64
	}{
		{"alone", nil, 1, math.Inf(1)},
		{"scaled and clipped", []string{"teacher.scale=0.5", "teacher.clip=0.3"}, 0.5, 0.3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "run")
			r, err := taught(t, dir, endpoint(t, nil), c.set...)
			if err != nil {
				t.Fatal(err)
			}
			file, err := os.Open(filepath.Join(dir, "checkpoints", "rows", "000001.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			rows, tokens, kl, clipped := 0, 0.0, 0.0, 0.0
			err = disk.ReadLines(file, func(line []byte) error {
				var row struct {
					IDs                  []int32
					Mask                 []uint8
					Advantages, Logprobs []float64
				}
				if err := json.Unmarshal(line, &row); err != nil {
					return err
				}
				rows++
				for i, m := range row.Mask {
					want := 0.0
					if m != 0 {
						above := llmtest.Logprob(row.IDs[i]) - row.Logprobs[i]
						tokens, kl = tokens+1, kl-above
						if math.Abs(above) > c.max {
							clipped++
						}
						want = c.scale * max(-c.max, min(c.max, above))
					}
					if math.Abs(row.Advantages[i]-want) > 1e-12 {
						t.Errorf("the advantage of token %d is %v, want %v", i, row.Advantages[i], want)
					}
				}
				return nil
			})
			if err != nil || rows != 4 || tokens == 0 {
				t.Fatalf("%d rows with %v tokens: %v", rows, tokens, err)
			}
			v := r.Points[len(r.Points)-1].Values
			if math.Abs(v["teacher/kl"]-kl/tokens) > 1e-12 || math.Abs(v["teacher/clipped"]-clipped/tokens) > 1e-12 ||
				(clipped > 0) != (c.max < 1) {
				t.Errorf("kl %v and clipped %v, want %v and %v", v["teacher/kl"], v["teacher/clipped"], kl/tokens, clipped/tokens)
			}
		})
	}
}

// The advantage from a rollout's reward is added to the teacher's for each token.
func TestTeacherBesideTheReward(t *testing.T) {
	t.Parallel()
	for reward, want := range map[bool]float64{false: 2 * -0.5, true: 2*-0.5 + 0.75} {
		row := rl.Row{IDs: []int32{4, 5, 6}, Mask: []uint8{0, 1, 0}, Logprobs: []float64{0, -1, 0}, Advantage: 0.75}
		var l distillation
		l.learn(&row, []float64{-1.5, -9}, config.Teacher{Scale: 2, Reward: reward})
		if !slices.Equal(row.Advantages, []float64{0, want, 0}) {
			t.Errorf("with the reward %t the advantages are %v, want %v", reward, row.Advantages, want)
		}
	}
}

// A teacher with another tokenizer is refused before any rollout is played, and so is one that cannot score prompts.
func TestTeachersThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(path string, answer map[string]any)
		want error
	}{
		"other ids": {func(path string, answer map[string]any) {
			if path == "/tokenize" {
				answer["tokens"] = append(answer["tokens"].([]any), 7)
			}
		}, llm.ErrOtherTokenizer},
		"another text": {func(path string, answer map[string]any) {
			if path == "/detokenize" {
				answer["prompt"] = strings.ToUpper(answer["prompt"].(string))
			}
		}, llm.ErrOtherTokenizer},
		"no score of a token": {func(path string, answer map[string]any) {
			if path == "/v1/completions" {
				scores := answer["choices"].([]any)[0].(map[string]any)["prompt_logprobs"].([]any)
				scores[len(scores)-1] = map[string]any{"0": map[string]any{"logprob": -1}}
			}
		}, llm.ErrUntrainable},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		_, err := taught(t, dir, endpoint(t, c.edit))
		if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), "teacher http") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if played, _ := filepath.Glob(filepath.Join(dir, "rollouts", "*")); len(played) > 0 {
			t.Errorf("%s: rollouts were played: %q", name, played)
		}
	}
	for set, want := range map[string]string{
		"teacher.model=m": "teacher.model is given without teacher.url", "teacher.clip=-1": "teacher.clip is -1: want 0",
	} {
		if _, err := config.Load([]byte(tiny), builtin.Parts(), set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
	if _, err := config.Load([]byte(tiny), builtin.Parts(), "teacher.url=x", "teacher.scale=0"); err == nil {
		t.Error("a scale of 0 was accepted")
	}
}
