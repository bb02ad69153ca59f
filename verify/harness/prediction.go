package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Prediction is one line of a predictions file, which the official harness reads: the patch that a model proposes
// for a task.
type Prediction struct {
	InstanceID string `json:"instance_id"`
	Model      string `json:"model_name_or_path"`
	// Patch is nil if the model gave none.
	Patch *string `json:"model_patch"`
}

// ReadPredictions reads predictions in any form that [ReadAllPredictions] accepts. If a task has several, it
// returns only the last, in the position of the first.
func ReadPredictions(r io.Reader) ([]Prediction, error) {
	list, err := ReadAllPredictions(r)
	var predictions []Prediction
	at := map[string]int{}
	for _, p := range list {
		if i, again := at[p.InstanceID]; again {
			predictions[i] = p
			continue
		}
		at[p.InstanceID] = len(predictions)
		predictions = append(predictions, p)
	}
	return predictions, err
}

// ReadAllPredictions reads a list of predictions, an object whose values are predictions, or one prediction per
// line. It detects the form from the content, whatever the file's name.
func ReadAllPredictions(r io.Reader) ([]Prediction, error) {
	list, err := values(json.NewDecoder(r))
	if err != nil {
		return nil, fmt.Errorf("read predictions: %w", err)
	}
	predictions := make([]Prediction, len(list))
	for n, raw := range list {
		if err := json.Unmarshal(raw, &predictions[n]); err != nil {
			return nil, fmt.Errorf("prediction %d: %w", n+1, err)
		}
		if predictions[n].InstanceID == "" {
			return nil, fmt.Errorf("prediction %d: instance_id is missing", n+1)
		}
	}
	return predictions, nil
}

// values returns the predictions in any of the three forms.
func values(d *json.Decoder) (list []json.RawMessage, err error) {
	for {
		var v json.RawMessage
		err := d.Decode(&v)
		switch {
		case errors.Is(err, io.EOF) && len(list) == 1 && !isPrediction(list[0]):
			return members(list[0])
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("value %d: %w", len(list)+1, err)
		case len(list) == 0 && v[0] == '[':
			err = json.Unmarshal(v, &list)
			return list, err
		}
		list = append(list, v)
	}
}

func isPrediction(v json.RawMessage) bool {
	var p struct {
		InstanceID *json.RawMessage `json:"instance_id"`
	}
	return json.Unmarshal(v, &p) == nil && p.InstanceID != nil
}

// members returns an object's values in order.
func members(v json.RawMessage) ([]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(v))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("neither a list nor an object of predictions")
	}
	var list []json.RawMessage
	for d.More() {
		if _, err := d.Token(); err != nil {
			return nil, err
		}
		var m json.RawMessage
		if err := d.Decode(&m); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}
