package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepswe/rl/train/demonstrations"
	"deepswe/rl/train/modelfiles"
)

// Objective is how a policy learns.
type Objective string

// A policy learns from rewards, or imitates examples (supervised fine-tuning).
const (
	reinforcement Objective = "rl"
	Imitation     Objective = "sft"
)

const (
	objectiveKey = "objective"
	sftKey       = "sft"
)

// SFT are the settings of supervised fine-tuning, in the section sft. README.md documents them.
type SFT struct {
	// Rows is the file with the examples: rows.jsonl, or what deepswe export writes with --format sft or verifier; or the
	// name of bundled demonstrations.
	Rows string `yaml:"rows"`
	// Tokenizer is the model's tokenizer.json, or the directory that has it; empty is the trainer's. Conversations need
	// it; rows of ids are compared with it if it is set.
	Tokenizer string `yaml:"tokenizer"`
	// Model is the trainer's base model. Its tokenizer encodes conversations if Tokenizer is empty.
	Model string `yaml:"-"`
	// Template is the chat template of conversations; auto is the trainer's.
	Template string `yaml:"template"`
	// MinReward is the minimum reward of a rollout of rows.jsonl that is imitated.
	MinReward float64 `yaml:"min_reward"`
	// TooLong decides what to do with examples that are longer than the trainer takes.
	TooLong TooLong `yaml:"too_long"`
	// Batch is the number of rows in an update, Epochs how often each row is used.
	Batch  int `yaml:"batch" least:"1"`
	Epochs int `yaml:"epochs" least:"1"`
	// Mean decides how the loss is averaged: over all trained tokens of a batch, or over the means of its rows.
	Mean Mean `yaml:"mean"`
	// Schedule is the course of the learning rate after its warm-up.
	Schedule Schedule `yaml:"schedule"`
	// Validation is the share of the rows that is held out, whole tasks of them, to measure the loss on: before the
	// first update, after each epoch, and after every ValidateEvery updates if that is not 0.
	Validation    float64 `yaml:"validation" most:"0.9"`
	ValidateEvery int     `yaml:"validate_every" least:"0"`
}

// TooLong is what to do with an example that is too long.
type TooLong string

// An example that is too long ends the run before it begins, or it is left out.
const (
	Refuse TooLong = "refuse"
	leave  TooLong = "drop"
)

// Mean is how a loss is averaged.
type Mean string

// Each token of a batch has the same weight, or each row.
const (
	OverTokens Mean = "tokens"
	OverRows   Mean = "rows"
)

// Schedule is the course of a learning rate.
type Schedule string

// The learning rate stays the same, or falls to 0 with the last update, linearly or like a cosine from its maximum to
// its minimum.
const (
	Constant Schedule = "constant"
	Linear   Schedule = "linear"
	Cosine   Schedule = "cosine"
)

func newSFT() *SFT {
	return &SFT{
		Template: modelfiles.TemplateAuto, MinReward: 1, TooLong: Refuse, Batch: 8, Epochs: 2, Mean: OverTokens,
		Schedule: Constant, Validation: 0.05,
	}
}

func (s *SFT) validate() error {
	var rows, reward error
	if s.Rows == "" {
		rows = errors.New("sft.rows is missing: want a file of examples (deepswe export writes them)")
	}
	if math.IsNaN(s.MinReward) || math.IsInf(s.MinReward, 0) {
		reward = fmt.Errorf("sft.min_reward is %v: want a number", s.MinReward)
	}
	return errors.Join(rows, reward,
		oneOf("sft.template", s.Template, modelfiles.Templates()...), oneOf("sft.too_long", s.TooLong, Refuse, leave),
		oneOf("sft.mean", s.Mean, OverTokens, OverRows), oneOf("sft.schedule", s.Schedule, Constant, Linear, Cosine))
}

func oneOf[T ~string](key string, v T, choices ...T) error {
	if slices.Contains(choices, v) {
		return nil
	}
	words := make([]string, len(choices))
	for i, c := range choices {
		words[i] = string(c)
	}
	return fmt.Errorf("%s is %q: want one of %s", key, v, strings.Join(words, ", "))
}

// Factor returns the factor of the learning rate for an update. after is how many updates there have been since the
// warm-up, and of is how many there are after it in all.
func (s Schedule) Factor(after, of int) float64 {
	share := 0.0
	if of > 0 && after > 0 {
		share = min(1, float64(after)/float64(of))
	}
	switch s {
	case Linear:
		return 1 - share
	case Cosine:
		return (1 + math.Cos(math.Pi*share)) / 2
	}
	return 1
}

// sftKeys returns the keys that a configuration may have if its objective is sft.
func sftKeys() []string {
	return []string{objectiveKey, "name", "seed", EnvironmentKey, TrainerKey, sftKey, "optimizer", "checkpoint"}
}

// notSFT returns the keys of the optimizer that sft.batch and sft.epochs replace.
func notSFT() []string { return []string{"minibatches", "epochs"} }

// loadSFT reads the section of a configuration whose objective is sft.
func (c *Config) loadSFT(root, section *yaml.Node) error {
	if err := appliesToSFT(root); err != nil {
		return err
	}
	c.SFT = newSFT()
	if !section.IsZero() {
		if err := decodeSection(section, c.SFT, sftKey); err != nil {
			return err
		}
	}
	paths := []*string{&c.SFT.Tokenizer}
	if !demonstrations.Bundled(c.SFT.Rows) {
		paths = append(paths, &c.SFT.Rows)
	}
	return Absolute(paths...)
}

// appliesToSFT returns an error for keys that would have no effect.
func appliesToSFT(root *yaml.Node) error {
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if !slices.Contains(sftKeys(), key.Value) {
			return fmt.Errorf("%s%s does not apply to objective %s, which has %s", lineOf(key), key.Value, Imitation,
				strings.Join(sftKeys(), ", "))
		}
		if key.Value != "optimizer" {
			continue
		}
		for _, name := range notSFT() {
			if child(value, name) >= 0 {
				return fmt.Errorf("%soptimizer.%s does not apply to objective %s, which has sft.batch and sft.epochs",
					lineOf(key), name, Imitation)
			}
		}
	}
	return nil
}

// lineOf returns a prefix with the line of a key; empty if the key is not from a file.
func lineOf(n *yaml.Node) string {
	if n.Line == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", n.Line)
}

// onlySFT returns the part of a configuration that its objective has keys for.
func onlySFT(whole *yaml.Node) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, key := range sftKeys() {
		at := child(whole, key)
		if at < 0 {
			continue
		}
		value := whole.Content[at]
		if key == "optimizer" {
			for _, name := range notSFT() {
				value = without(value, name)
			}
		}
		out.Content = append(out.Content, scalar(key), value)
	}
	return out
}
