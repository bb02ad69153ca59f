package builtin

import (
	"strings"
	"testing"

	"deepswe/rl/train/config"
)

func TestConfigurationOfImitation(t *testing.T) {
	t.Parallel()
	const on = "objective: sft\ntrainer: {name: embedded}\nenvironment: {name: residue}\n"
	for text, want := range map[string]string{
		on + "sft: {rows: x}\nrollouts: {tasks: 3}\n":   "line 5: rollouts does not apply to objective sft",
		on + "sft: {rows: x}\nsteps: 3\n":               "steps does not apply",
		on + "sft: {rows: x}\noptimizer: {epochs: 3}\n": "which has sft.batch and sft.epochs",
		on:                                      "sft.rows is missing",
		on + "sft: {rows: x, batch: 0}\n":       "sft.batch is 0",
		on + "sft: {rows: x, validation: 1}\n":  "sft.validation is 1",
		on + "sft: {rows: x, schedule: step}\n": "want one of constant, linear, cosine",
		on + "sft: {rows: x, bacth: 3}\n":       `unknown key "bacth" in sft, which has rows`,
		least + "sft: {rows: x}\n":              "sft applies to objective sft only",
		"objective: sft\ntrainer: {name: rows}\nsft: {rows: x}\n": "changes no weight",
		least + "objective: dpo\n":                                `objective is "dpo": want one of rl, sft`,
	} {
		if _, err := config.Load([]byte(text), Parts()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s%v; want %q in it", text, err, want)
		}
	}
	c := mustLoad(t, on+"sft: {rows: x, schedule: cosine}\n", "sft.batch=3")
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again := mustLoad(t, string(text))
	if keys, err := again.Changed(text); err != nil || len(keys) > 0 || again.SFT.Batch != 3 {
		t.Errorf("loaded again, %v differ, %v\n%s", keys, err, text)
	}
}
