package builtin

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"deepswe/agent"
	"deepswe/env/testkit"
	"deepswe/rl"
	"deepswe/rl/train/config"
	"deepswe/rl/train/games"
)

const least = "environment: {name: frozenlake}\ntrainer: {name: embedded}\n"

// tiny sets values that differ from the defaults.
const tiny = `
name: tiny
steps: 6
environment: {name: frozenlake, max_size: 4, radius: 2, max_tokens: 2, train_tasks: 12, validation_tasks: 5}
trainer: {name: embedded, hidden: 8}
rollouts: {tasks: 4, group: 4, refill: 1, workers: 4, drain: 0s}
optimizer: {minibatches: 2, learning_rate: 0.02}
evaluate: {every: 2, attempts: 2}
`

func mustLoad(t *testing.T, text string, set ...string) config.Config {
	t.Helper()
	c, err := config.Load([]byte(text), Parts(), set...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestErrorsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       []string
	}{
		{"unknown key", least + "stepps: 3\n", []string{"line 3", `unknown key "stepps"`, "which has name, seed, steps"}},
		{"unknown key in a section", least + "optimizer:\n  lerning_rate: 3\n",
			[]string{"line 4", "in optimizer", "has learning_rate, warmup"}},
		{"unknown key of the environment", "environment:\n  name: frozenlake\n  radios: 3\ntrainer: {name: embedded}\n",
			[]string{"line 3", "in environment", " radius,"}},
		{"unknown key of the trainer", "environment: {name: frozenlake}\ntrainer:\n  name: embedded\n  layers: 3\n",
			[]string{"line 4", "in trainer", "which has hidden"}},
		{"unknown key deep down", least + "guards:\n  collapse:\n    windows: 3\n",
			[]string{"line 5", "guards.collapse", "has window, fraction"}},
		{"with dashes", least + "rollouts: {keep-logs: true}\n", []string{" keep_logs"}},
		{"nothing near", least + "zzzzzzzz: 3\n", []string{"has name, seed, steps", "environment, trainer, ablation"}},
		{"wrong type", least + "steps: many\n", []string{"line 3", "many"}},
		{"twice", least + "steps: 1\nsteps: 2\n", []string{"line 4", "steps", "already defined at line 3"}},
		{"section twice", least + "trainer: {name: embedded}\n", []string{"line 3", "trainer", "already defined at line 2"}},
		{"no environment", "trainer: {name: embedded}\n", []string{"environment.name is missing", "frozenlake"}},
		{"no trainer", "environment: {name: frozenlake}\n", []string{"trainer.name is missing", "embedded"}},
		{"another environment", "environment: {name: lakes}\ntrainer: {name: embedded}\n",
			[]string{"line 1", `"lakes"`, "frozenlake"}},
		{"a list", "- 1\n", []string{"line 1", "key: value"}},
		{"two documents", least + "---\nsteps: 2\n", []string{"second document"}},
		{"not YAML", least + "steps: [1\n", []string{"line"}},
		{"preset", least + "algorithm: {preset: ppo}\n", []string{"algorithm.preset", `"ppo"`, "grpo++"}},
		{"switch", least + "algorithm: {set: {bseline: mean}}\n", []string{"algorithm.set", "bseline", "baseline"}},
		{"value of a switch", least + "algorithm: {set: {baseline: median}}\n",
			[]string{"baseline", "median", "leave_one_out"}},
		{"max_length among the switches", least + "algorithm: {set: {max_length: 3}}\n", []string{"algorithm.max_length"}},
		{"steps", least + "steps: 0\n", []string{"steps is 0"}},
		{"several at once", least + "steps: 0\nrollouts: {tasks: 0, group: -1}\n",
			[]string{"steps", "rollouts.tasks is 0", "rollouts.group is -1"}},
		{"minibatches", least + "rollouts: {tasks: 3}\noptimizer: {minibatches: 4}\n", []string{"minibatches is 4", "(3)"}},
		{"learning rate", least + "optimizer: {learning_rate: -1}\n", []string{"learning_rate is -1"}},
		{"not a number", least + "optimizer: {weight_decay: .nan}\n", []string{"weight_decay is NaN"}},
		{"duration", least + "rollouts: {deadline: soon}\n", []string{"line 3", "soon", "90s"}},
		{"action", least + "guards: {collapse: {action: scream}}\n", []string{"line 3", "scream", "off, warn, stop"}},
		{"lake", "environment: {name: frozenlake, min_size: 1}\ntrainer: {name: embedded}\n",
			[]string{"environment", "min_size"}},
		{"ablation without variants", least + "ablation: {seeds: [1]}\n", []string{"line 3", "one variant"}},
		{"variant without a name", least + "ablation:\n  variants:\n    - steps: 2\n", []string{"line 5", "needs a name"}},
		{"variants alike", least + "ablation:\n  variants:\n    - name: A b\n    - name: a-B\n", []string{"line 6", "a-B"}},
		{"variant with a path for a name", least + "ablation:\n  variants:\n    - name: ../x\n", []string{"line 5", "../x"}},
		{"unknown key in a variant", least + "ablation:\n  variants:\n    - name: x\n      optimizer: {warmpu: 1}\n",
			[]string{"line 6", `variant "x"`, " warmup,"}},
		{"variant that changes the seed", least + "ablation:\n  variants:\n    - {name: x, seed: 2}\n",
			[]string{"cannot change seed"}},
		{"the same seed twice", least + "ablation: {seeds: [1, 1], variants: [{name: x}]}\n", []string{"line 3", "1 twice"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := config.Load([]byte(tt.text), Parts())
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\ndoes not say %q", err, w)
				}
			}
		})
	}
}

func TestDefaultsFromEnvironmentAndTrainer(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, least)
	// 10 turns of 62 tokens to read, 3 marks, and 4 tokens to write with a closing one.
	if c.RL().MaxLength != 10*(62+3+4+1) || c.Optimizer.LearningRate != 3e-3 {
		t.Errorf("max_length %d, learning rate %g", c.RL().MaxLength, c.Optimizer.LearningRate)
	}
	c = mustLoad(t, least+"algorithm: {max_length: 99}\noptimizer: {learning_rate: 0.5}\n")
	if c.RL().MaxLength != 99 || c.Optimizer.LearningRate != 0.5 {
		t.Errorf("max_length %d, learning rate %g", c.RL().MaxLength, c.Optimizer.LearningRate)
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, tiny, "steps=9", "optimizer.learning_rate=1e-3", "filter.max-steps=drop", "algorithm.set.std=true",
		"environment.max_size=5", "rollouts.deadline=90s", "uniform=drop")
	a := c.RL()
	if c.Steps != 9 || c.Optimizer.LearningRate != 1e-3 || a.Filter[agent.MaxSteps] != rl.Drop || a.Normalise != rl.ByStd ||
		!a.DropUniform ||
		c.Environment.(*games.FrozenLake).MaxSize != 5 || c.Rollouts.Deadline != config.Duration(90e9) {
		t.Errorf("%+v %+v", c, a)
	}
	for set, want := range map[string]string{
		"trainer.blind=true": "blind requires", "trainer.batch=0": "batch is 0", "trainer.passes=-1": "passes is -1",
		"trainer.imitation_rate=2": "imitation_rate is 2",
		"stepps=3":                 `"stepps=3": unknown key "stepps" in the configuration, which has name, seed, steps`,
	} {
		if _, err := config.Load([]byte(least), Parts(), set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
	}
	for _, bad := range []string{"steps", "=3", "stepps=3", "optimizer.lr=3", "steps=[1", "steps=many"} {
		_, err := config.Load([]byte(tiny), Parts(), bad)
		key, _, _ := strings.Cut(bad, "=")
		if err == nil || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Loading what a dry run prints gives the same configuration, including every variant.
func TestYAMLLoadsToTheSame(t *testing.T) {
	t.Parallel()
	testkit.SkipUnderRace(t)
	texts := []string{least, tiny}
	for _, name := range []string{"frozenlake.yaml", "frozenlake-ablation.yaml", "submit-ablation.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../../testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	rapid.Check(t, func(rt *rapid.T) {
		set := []string{"algorithm.preset=" + rapid.SampledFrom(rl.Presets()).Draw(rt, "preset")}
		set = append(set, rapid.SliceOf(rapid.SampledFrom([]string{
			"seed=18446744073709551615", "filter.timeout=drop", "clip.high=0.5", "rollouts.deadline=1h30m",
			"guards.collapse.action=off",
			"environment.submit=true", "trainer.hidden=7", "name=a b", "singleton=drop", "checkpoint.keep=5", "entropy=0.01",
		})).Draw(rt, "set")...)
		c, err := config.Load([]byte(rapid.SampledFrom(texts).Draw(rt, "text")), Parts(), set...)
		if err != nil {
			rt.Fatal(err)
		}
		first, err := c.YAML()
		if err != nil {
			rt.Fatal(err)
		}
		again, err := config.Load(first, Parts())
		if err != nil {
			rt.Fatalf("%v\n%s", err, first)
		}
		second, err := again.YAML()
		if err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(string(first), string(second)); d != "" {
			rt.Fatal(d)
		}
		same(rt, c, again)
		if c.Ablation != nil {
			for i, v := range c.Ablation.Variants {
				same(rt, v.Config, again.Ablation.Variants[i].Config)
			}
		}
	})
}

// same checks that two configurations mean the same.
func same(t *rapid.T, a, b config.Config) {
	text, err := a.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := b.Changed(text); err != nil || len(keys) > 0 {
		t.Fatalf("loaded again, these differ: %v, %v", keys, err)
	}
	if d := cmp.Diff(a.RL().Settings(), b.RL().Settings()); d != "" {
		t.Fatal(d)
	}
}

func TestVariants(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, tiny+`
algorithm: {preset: grpo++, set: {entropy: 0.01}}
ablation:
  seeds: [3, 4]
  variants:
    - name: GRPO++
    - name: GRPO
      algorithm: {preset: grpo}
    - name: slow
      optimizer: {learning_rate: 0.001}
`)
	v := c.Ablation.Variants
	if len(v) != 3 || c.Ablation.Parallel != 2 || !slices.Equal(c.Ablation.Seeds, []uint64{3, 4}) {
		t.Fatalf("%+v", c.Ablation)
	}
	if a := v[1].Config.RL(); a.Normalise != rl.ByStd || a.Baseline != rl.Mean || a.Objective.Entropy != 0.01 {
		t.Errorf("the preset of a variant, and the base's switches over it: %s", a)
	}
	if a := v[2].Config; a.RL().Normalise == rl.ByStd || a.Optimizer.LearningRate != 0.001 || a.Optimizer.Minibatches != 2 {
		t.Errorf("a variant of the optimizer: %+v", a.Optimizer)
	}
}

// README.md has every key with its actual default.
func TestREADME(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]string{
		"frozenlake": least,
		"residue":    "environment: {name: residue}\ntrainer: {name: embedded}\n",
		"swe":        "environment: {name: swe, train: {path: x}}\ntrainer: {name: embedded}\nevaluate: {every: 0}\n",
	} {
		own := string(text)
		for other := range Parts().Environments {
			if other != name {
				own = regexp.MustCompile("(?ms)^### `environment: .name: "+other+".`$.*?^### ").ReplaceAllString(own, "### ")
			}
		}
		t.Run(name, func(t *testing.T) { checkREADME(t, own, config) })
	}
}

func checkREADME(t *testing.T, text, name string) {
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|([^|]*)\\|").FindAllStringSubmatch(text, -1) {
		keys, values := strings.Split(m[1], ", "), strings.Split(m[2], ", ")
		for i, key := range keys {
			value := m[2]
			if len(keys) == len(values) {
				value = values[i]
			}
			documented[strings.Trim(key, "`")] = strings.Trim(strings.TrimSpace(value), "`")
		}
	}
	data, err := mustLoad(t, name).YAML()
	if err != nil {
		t.Fatal(err)
	}
	inForce, err := config.Flatten(data)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range inForce {
		got, ok := documented[key]
		switch {
		case strings.HasPrefix(key, "algorithm.set."), strings.HasSuffix(key, ".name"), strings.HasPrefix(key, "trainer."),
			key == "evaluate.every":
		case !ok:
			t.Errorf("%s is not in README.md", key)
		case strings.HasPrefix(got, "the "):
		case got != value:
			t.Errorf("README.md says that %s is %s by default; it is %s", key, got, value)
		}
	}
	for key := range documented {
		section, _, _ := strings.Cut(key, ".")
		if _, ok := inForce[key]; !ok && section != "ablation" && section != "simulate" && inForce[section] == "" &&
			strings.Contains(key, ".") &&
			!strings.ContainsAny(key, "/ ") && !strings.HasSuffix(key, ".name") && !strings.HasSuffix(key,
			".json") && !strings.HasSuffix(key, ".set") &&
			!strings.HasSuffix(key, ".yaml") && !strings.HasSuffix(key, ".jsonl") && !strings.HasSuffix(key, ".html") {
			t.Errorf("README.md has %s, which is no key", key)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(tiny))
	f.Add([]byte(least + "ablation: {variants: [{name: x}]}\n"))
	f.Add([]byte("a: &a {b: *a}\n"))
	f.Add([]byte("<<: {steps: 3}\n" + least))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Load(data, Parts())
		if err != nil {
			return
		}
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(text, Parts()); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	})
}

// A server that samples itself gives no replies between the optimizer steps of an update, so an update that waits for
// rollouts there would never end.
func TestMinibatchesBesideSampling(t *testing.T) {
	t.Parallel()
	const text = `
environment: {name: residue}
trainer: {name: tinker, base_url: "http://t", model: m, vocabulary: 9}
optimizer: {minibatches: 2}
rollouts: {max_staleness: 1}
`
	_, err := config.Load([]byte(text), Parts())
	if err == nil || !strings.Contains(err.Error(), "set optimizer.minibatches to 1") {
		t.Errorf("two minibatches, one update ahead: %v", err)
	}
	for _, set := range []string{"optimizer.minibatches=1", "rollouts.max_staleness=0", "trainer.samplers=['http://v']"} {
		if _, err := config.Load([]byte(text), Parts(), set); err != nil {
			t.Errorf("%s: %v", set, err)
		}
	}
}
