package config

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepswe/agent/chatml"
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
	// Rows is the file with the examples: rows.jsonl, or what deepswe export writes with --format sft or verifier.
	Rows string `yaml:"rows"`
	// Tokenizer is the model's tokenizer.json, or the directory that has it; empty is the trainer's. Conversations need
	// it; rows of ids are compared with it if it is set.
	Tokenizer string `yaml:"tokenizer"`
	// Model is the trainer's base model. Its tokenizer encodes conversations if Tokenizer is empty.
	Model string `yaml:"-"`
	// Template is the chat template of conversations; auto is the trainer's.
	Template chatml.Template `yaml:"template"`
	// MinReward is the minimum reward of a rollout of rows.jsonl that is imitated.
	MinReward float64 `yaml:"min_reward"`
	// TooLong decides what to do with examples that are longer than the trainer takes.
	TooLong TooLong `yaml:"too_long"`
	// Batch is the number of rows in an update, Epochs how often each row is used.
	Batch  int `yaml:"batch"`
	Epochs int `yaml:"epochs"`
	// Mean decides how the loss is averaged: over all trained tokens of a batch, or over the means of its rows.
	Mean Mean `yaml:"mean"`
	// Schedule is the course of the learning rate after its warm-up.
	Schedule Schedule `yaml:"schedule"`
	// Validation is the share of the rows that is held out, whole tasks of them, to measure the loss on: before the
	// first update, after each epoch, and after every ValidateEvery updates if that is not 0.
	Validation    float64 `yaml:"validation"`
	ValidateEvery int     `yaml:"validate_every"`
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

// absolute makes the paths absolute, because a run may be resumed in another directory.
func (s *SFT) absolute() error {
	for _, p := range []*string{&s.Rows, &s.Tokenizer} {
		if *p == "" {
			continue
		}
		full, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = full
	}
	return nil
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
		oneOf("sft.template", string(s.Template), modelfiles.Templates()...), oneOf("sft.too_long", s.TooLong, Refuse, leave),
		Positive("sft.batch", s.Batch), Positive("sft.epochs", s.Epochs), oneOf("sft.mean", s.Mean, OverTokens, OverRows),
		oneOf("sft.schedule", s.Schedule, Constant, Linear, Cosine), Fraction("sft.validation", s.Validation, 0.9),
		Natural("sft.validate_every", s.ValidateEvery))
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

// Factor returns the factor of the learning rate for an update. after is the number of updates between the warm-up
// and it, of the number of all updates after the warm-up.
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

// loadSFT completes a configuration whose objective is sft.
func (c *Config) loadSFT(root *yaml.Node, in *document, parts Parts) error {
	if err := appliesToSFT(root); err != nil {
		return err
	}
	c.SFT = newSFT()
	if !in.SFT.IsZero() {
		if err := decodeSection(&in.SFT, c.SFT, sftKey); err != nil {
			return err
		}
	}
	if err := c.SFT.absolute(); err != nil {
		return err
	}
	var err error
	if !in.Environment.IsZero() {
		c.environmentName, c.Environment, err = section(&in.Environment, EnvironmentKey, parts.Environments)
		if err != nil {
			return err
		}
	}
	if c.trainerName, c.Trainer, err = section(&in.Trainer, TrainerKey, parts.Trainers); err != nil {
		return err
	}
	var errs []error
	if c.Environment != nil {
		if err := c.Environment.Complete(c); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", EnvironmentKey, err))
		}
	}
	if err := c.Trainer.Complete(c); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", TrainerKey, err))
	}
	return errors.Join(append(errs, c.SFT.validate(), c.Optimizer.validate(1),
		Positive("checkpoint.every", c.Checkpoint.Every), Positive("checkpoint.keep", c.Checkpoint.Keep))...)
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

// nodeSFT returns the configuration as a YAML document.
func (c Config) nodeSFT() (*yaml.Node, error) {
	var whole, environment, trainer, sft yaml.Node
	err := errors.Join(whole.Encode(c), trainer.Encode(c.Trainer), sft.Encode(c.SFT))
	if c.Environment != nil {
		err = errors.Join(err, environment.Encode(c.Environment))
	}
	if err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, key := range sftKeys() {
		at, value := child(&whole, key), &yaml.Node{}
		switch {
		case key == EnvironmentKey && c.Environment == nil:
			continue
		case key == EnvironmentKey:
			value = named(&environment, c.environmentName)
		case key == TrainerKey:
			value = named(&trainer, c.trainerName)
		case key == sftKey:
			value = &sft
		case at >= 0:
			value = whole.Content[at]
		}
		if key == "optimizer" {
			for _, name := range notSFT() {
				value = without(value, name)
			}
		}
		root.Content = append(root.Content, scalar(key), value)
	}
	return root, nil
}
