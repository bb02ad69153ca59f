package swe

import (
	"errors"
	"fmt"
	"os"

	"deepswe/env"
	"deepswe/verify/harness"
)

// Built-in predictions, which need no file.
const (
	Gold  = "gold"  // the tasks' reference solutions
	Empty = "empty" // empty patches
)

// Candidate is one patch to grade.
type Candidate struct {
	Task  env.Task
	Model string
	// Patch is nil if the prediction has none. Unless Always is set, such a prediction, or an empty one, is not
	// run.
	Patch  []byte
	Always bool
}

// Runs reports whether anything is run for the patch.
func (c Candidate) Runs() bool { return c.Always || len(c.Patch) > 0 }

// Predictions are the patches that a model proposes for tasks, or built-in ones.
type Predictions struct {
	// Model is the model of the first prediction.
	Model string

	builtin bool
	byTask  map[string]harness.Prediction
}

// ReadPredictions reads a file of predictions, or returns built-in ones for the names Gold and Empty.
func ReadPredictions(name string) (Predictions, error) {
	if name == Gold || name == Empty {
		return Predictions{Model: name, builtin: true}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return Predictions{}, err
	}
	defer f.Close()
	list, err := harness.ReadPredictions(f)
	if err == nil && len(list) == 0 {
		err = errors.New("it holds no predictions")
	}
	if err != nil {
		return Predictions{}, fmt.Errorf("%s: %w", name, err)
	}
	p := Predictions{Model: modelName(list[0]), byTask: make(map[string]harness.Prediction, len(list))}
	for _, one := range list {
		p.byTask[one.InstanceID] = one
	}
	return p, nil
}

func modelName(p harness.Prediction) string {
	if p.Model == "" {
		return "None"
	}
	return p.Model
}

// Candidate returns the patch to grade for a task; ok is false if there is none.
func (p Predictions) Candidate(t env.Task) (c Candidate, ok bool) {
	switch {
	case p.builtin && p.Model == Gold:
		return Candidate{Task: t, Model: Gold, Patch: []byte(t.Tests.GoldPatch)}, t.Tests.GoldPatch != ""
	case p.builtin:
		return Candidate{Task: t, Model: Empty, Patch: []byte{}, Always: true}, true
	}
	prediction, ok := p.byTask[t.ID]
	if !ok {
		return Candidate{}, false
	}
	c = Candidate{Task: t, Model: modelName(prediction)}
	if prediction.Patch != nil {
		c.Patch = []byte(*prediction.Patch)
	}
	return c, true
}

// Without returns the predictions' tasks that are not in known, in no particular order.
func (p Predictions) Without(known map[string]bool) []string {
	var ids []string
	for id := range p.byTask {
		if !known[id] {
			ids = append(ids, id)
		}
	}
	return ids
}
