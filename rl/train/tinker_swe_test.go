package train

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/agent/chatml"
	"deepswe/agent/tokenizer"
	"deepswe/agent/trajectory"
	"deepswe/env/local"
	"deepswe/env/testkit"
	"deepswe/rl/train/modelfiles"
	"deepswe/rl/trainer/embedded"
	"deepswe/rl/trainer/trainertest"
	"deepswe/tools"
)

// actions are what a policy can say in both formats: the right change, a wrong one, and the end.
var actions = map[string][]string{
	trajectory.FormatXML: {
		"<function=execute_bash>\n<parameter=cmd>echo 7 > number</parameter>\n</function>",
		"<function=execute_bash>\n<parameter=cmd>echo 8 > number</parameter>\n</function>",
		"<function=finish>\n<parameter=command>submit</parameter>\n</function>",
	},
	trajectory.FormatTools: {
		"<tool_call>\n{\"name\": \"execute_bash\", \"arguments\": {\"cmd\": \"echo 7 > number\"}}\n</tool_call>",
		"<tool_call>\n{\"name\": \"execute_bash\", \"arguments\": {\"cmd\": \"echo 8 > number\"}}\n</tool_call>",
		"<tool_call>\n{\"name\": \"finish\", \"arguments\": {\"command\": \"submit\"}}\n</tool_call>",
	},
}

// speaker returns the directory of a model whose tokenizer has the words, and a server that trains it.
func speaker(t *testing.T, words []string, o trainertest.Options) (string, *trainertest.Server) {
	t.Helper()
	dir, speech := spoken(t, words)
	letters := strings.Split("abcdefgh", "")[:len(words)]
	o.Speech, o.Base, o.Language = &speech, dir, embedded.Language{Vocabulary: letters, Window: 1, Reply: 2}
	return dir, trainertest.New(t, o)
}

// spoken returns the directory of a model whose tokenizer has the words, and their ids.
func spoken(t *testing.T, words []string) (string, trainertest.Speech) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "agent", "tokenizer", "testdata", "qwen.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	added := file["added_tokens"].([]any)
	size := int32(added[len(added)-1].(map[string]any)["id"].(float64)) + 1
	var speech trainertest.Speech
	for _, w := range words {
		added = append(added, map[string]any{"id": size, "content": w, "special": false, "normalized": false})
		speech.Words = append(speech.Words, size)
		size++
	}
	file["added_tokens"] = added
	if data, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, modelfiles.TokenizerFile), string(data))
	testkit.WriteFile(t, filepath.Join(dir, "config.json"), fmt.Sprintf(`{"vocab_size": %d}`, size+5))
	tok, err := tokenizer.Load(filepath.Join(dir, modelfiles.TokenizerFile))
	if err != nil {
		t.Fatal(err)
	}
	speech.Before, speech.Size = tok.Encode("\n")[0], int(size)+5
	speech.End, _ = tok.ID("<|im_end|>")
	return dir, speech
}

// sweOnTinker trains on two tasks that random actions sometimes solve.
const sweOnTinker = `
steps: 3
seed: 3
environment:
  name: swe
  train: {path: %q}
  census: "off"
  evidence: none
  format: %s
  max_steps: 4
  context: 16384
  sandbox: {env: host}
trainer: {name: tinker, base_url: %s, model: %q, template: %s, rank: 8, normalisation: mean, check_tokens: 32}
rollouts: {tasks: 1, group: 6, workers: 2}
optimizer: {learning_rate: 0.05}
evaluate: {every: 0}
`

// The coding agent is trained over the protocol: the policy reads what the chat template writes, each rollout is one
// row of the sampled ids, and each step has a gradient and publishes a version.
func TestSWEOverTheWire(t *testing.T) {
	t.Parallel()
	if p, err := local.NewHost(local.Options{}); err != nil {
		t.Skip(err)
	} else if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		format   string
		template string
		set      []string
		faults   func(*trainertest.Server)
		vllm     bool
	}{
		{name: "XML", format: trajectory.FormatXML, template: chatml.Qwen3, set: []string{"steps=2"}},
		{name: "native calls across publications", format: trajectory.FormatTools, template: chatml.Qwen25,
			set: []string{"rollouts.max_staleness=1", "steps=2"}},
		{name: "a restarted server", format: trajectory.FormatXML, template: chatml.Qwen25, set: []string{"steps=1"},
			faults: func(s *trainertest.Server) {
				s.Inject("asample", append(make([]trainertest.Fault, 8), trainertest.Fault{Restart: true})...)
			}},
		{name: "sampled by two vLLM servers", format: trajectory.FormatXML, template: chatml.Qwen3, set: []string{"steps=2"},
			vllm: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			model, s := speaker(t, actions[tt.format], trainertest.Options{Dedups: true})
			if tt.faults != nil {
				tt.faults(s)
			}
			tasks := filepath.Join(t.TempDir(), "tasks.jsonl")
			testkit.WriteFile(t, tasks, fmt.Sprintf(sweTask, "number-0")+"\n"+fmt.Sprintf(sweTask, "number-1")+"\n")
			dir := filepath.Join(t.TempDir(), "run")
			var vllms []*trainertest.VLLM
			if tt.vllm {
				codec := codecOf(t, model, tt.template)
				vllms = []*trainertest.VLLM{trainertest.NewVLLM(t, s, codec), trainertest.NewVLLM(t, s, codec)}
				tt.set = append(tt.set, fmt.Sprintf("trainer.samplers=[%q, %q]", vllms[0].URL, vllms[1].URL))
			}
			c := mustLoad(t, fmt.Sprintf(sweOnTinker, tasks, tt.format, s.URL(), model, tt.template), tt.set...)
			result, err := Start(t.Context(), c, Options{Dir: dir, World: scripted(nil)})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range vllms {
				if served := v.Served(); len(served) != c.Steps+1 || len(v.Loaded()) > 0 {
					t.Errorf("%s has sampled %v, and still has %q", v.URL, served, v.Loaded())
				}
			}
			for i, p := range result.Points {
				v := p.Values
				t.Logf("%d: reward %.3f, gradient %.3g, %v splits", p.Step, v["reward/mean"], v["optim/grad_norm"],
					v["splits/total"])
				if v["splits/total"] != 0 || v["publish/gap_mean"] > trainertest.Tolerance {
					t.Errorf("step %d: %v splits, and a gap of %v", p.Step, v["splits/total"], v["publish/gap_mean"])
				}
				if c.Rollouts.MaxStaleness > 0 {
					continue // which version samples which turn depends on timing
				}
				if v["policy/version"] != float64(i+1) || !(v["optim/grad_norm"] > 0) || v["groups/effective"] != 1 {
					t.Errorf("step %d: %v groups teach, the gradient's norm is %v, and the version %v", p.Step,
						v["groups/effective"], v["optim/grad_norm"], v["policy/version"])
				}
			}
			sampledAsWritten(t, dir, model, tt.template)
		})
	}
}

func codecOf(t *testing.T, model string, template string) *chatml.Codec {
	t.Helper()
	tok, err := tokenizer.Load(filepath.Join(model, modelfiles.TokenizerFile))
	if err != nil {
		t.Fatal(err)
	}
	codec, err := modelfiles.Codec(tok, model, template)
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

// sampledAsWritten checks a run's rollouts: the first prompt is the chat template's text, and each prompt extends what
// was sampled before.
func sampledAsWritten(t *testing.T, dir, model string, template string) {
	t.Helper()
	tok, err := tokenizer.Load(filepath.Join(model, modelfiles.TokenizerFile))
	if err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "rollouts", "*", "*", "steps.jsonl"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%d logs, %v", len(logs), err)
	}
	for _, path := range logs {
		rec, err := trajectory.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		turns, ok := rec.Samples()
		if !ok {
			t.Fatalf("%s: not all turns have tokens", path)
		}
		named, err := chatml.Named(template)
		if err != nil {
			t.Fatal(err)
		}
		opening, err := named.Render(rec.Messages[:2], chatml.Options{Tools: offered(t, rec), Reply: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.Decode(turns[0].PromptIDs); got != opening {
			t.Errorf("%s begins with\n%s\nand the template writes\n%s", path, got, opening)
		}
		for i, turn := range turns {
			if turn.PolicyVersion == nil {
				t.Errorf("%s: turn %d has no version", path, i)
			}
			if i == 0 {
				continue
			}
			last := slices.Concat(turns[i-1].PromptIDs, turns[i-1].CompletionIDs)
			if !slices.Equal(turn.PromptIDs[:len(last)], last) {
				t.Errorf("%s: turn %d does not begin with what was sampled", path, i)
			}
		}
	}
}

// offered returns the tools that a rollout with native calls was told about.
func offered(t *testing.T, rec *trajectory.Recording) []tools.Spec {
	t.Helper()
	if rec.Header.Format != trajectory.FormatTools {
		return nil
	}
	var specs []tools.Spec
	for _, raw := range rec.Header.Tools {
		var tool struct{ Function tools.Spec }
		if err := json.Unmarshal(raw, &tool); err != nil {
			t.Fatal(err)
		}
		specs = append(specs, tool.Function)
	}
	return specs
}
