package tinker

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// The types that several operations share. Servers ignore members that they do not know, so all get those that only
// some of them read.

// tensor is a flat array. Servers use only data, but require the other members.
type tensor[T floats | ints] struct {
	Data  T      `json:"data"`
	DType string `json:"dtype"`
	Shape [1]int `json:"shape"`
}

func floatTensor(v []float64) *tensor[floats] {
	return &tensor[floats]{Data: v, DType: "float32", Shape: [1]int{len(v)}}
}

// ints are token ids.
type ints []int32

// floats are numbers in single precision, as on the servers. null stands for NaN and infinities, which JSON lacks.
type floats []float64

// MarshalJSON writes each number in its shortest form. Numbers that are not finite in single precision are an error.
func (f floats) MarshalJSON() ([]byte, error) {
	out := make([]byte, 0, 2+12*len(f))
	out = append(out, '[')
	for i, v := range f {
		if i > 0 {
			out = append(out, ',')
		}
		if err := representable(i, v); err != nil {
			return nil, err
		}
		out = strconv.AppendFloat(out, v, 'g', -1, 32)
	}
	return append(out, ']'), nil
}

// representable returns an error for a number that is not finite in single precision.
func representable(i int, v float64) error {
	if math.IsNaN(v) || math.Abs(v) > math.MaxFloat32 {
		return fmt.Errorf("number %d is %v, which the trainer cannot compute with", i, v)
	}
	return nil
}

// UnmarshalJSON reads null as NaN.
func (f *floats) UnmarshalJSON(data []byte) error {
	body, ok := bytes.CutPrefix(bytes.TrimSpace(data), []byte("["))
	if !ok {
		return errors.New("want a list of numbers")
	}
	body = bytes.TrimSpace(bytes.TrimSuffix(body, []byte("]")))
	out := make(floats, 0, 1+bytes.Count(body, []byte(",")))
	for len(body) > 0 {
		word, rest, _ := bytes.Cut(body, []byte(","))
		word = bytes.TrimSpace(word)
		v := math.NaN()
		if !bytes.Equal(word, []byte("null")) {
			var err error
			if v, err = strconv.ParseFloat(string(word), 64); err != nil {
				return fmt.Errorf("number %d is %.20q", len(out), word)
			}
		}
		out, body = append(out, v), rest
	}
	*f = out
	return nil
}

// chunk is a part of a model's input.
type chunk struct {
	Type   string `json:"type"`
	Tokens ints   `json:"tokens"`
}

type modelInput struct {
	Chunks []chunk `json:"chunks"`
}

func inputOf(ids []int32) modelInput { return modelInput{Chunks: []chunk{{"encoded_text", ids}}} }

// datum is one sequence. The input is all ids except for the last, and element j of every array refers to id j+1, the
// target.
type datum struct {
	Input  modelInput `json:"model_input"`
	Inputs lossInputs `json:"loss_fn_inputs"`
}

type lossInputs struct {
	Targets    *tensor[ints]   `json:"target_tokens"`
	Weights    *tensor[floats] `json:"weights,omitempty"`
	Logprobs   *tensor[floats] `json:"logprobs,omitempty"`
	Advantages *tensor[floats] `json:"advantages,omitempty"`
}

// passInput is the input of forward and forward_backward.
type passInput struct {
	Data []datum `json:"data"`
	Loss string  `json:"loss_fn"`
}

// passOutput is their result, with one element for each datum.
type passOutput struct {
	Outputs []passResult `json:"loss_fn_outputs"`
}

type passResult struct {
	Logprobs struct {
		Data floats `json:"data"`
	} `json:"logprobs"`
}

// adam are the parameters of an optimizer step. SkyRL's GPU backends use only the learning rate.
type adam struct {
	LearningRate float64 `json:"learning_rate"`
	Beta1        float64 `json:"beta1"`
	Beta2        float64 `json:"beta2"`
	Epsilon      float64 `json:"eps"`
	WeightDecay  float64 `json:"weight_decay"`
	ClipNorm     float64 `json:"grad_clip_norm"`
}

type samplingParams struct {
	MaxTokens   int     `json:"max_tokens"`
	Seed        *int64  `json:"seed,omitempty"`
	Temperature float64 `json:"temperature"`
	TopK        int     `json:"top_k"`
	TopP        float64 `json:"top_p"`
	Stop        []int32 `json:"stop,omitempty"`
}

type sampleRequest struct {
	Prompt   modelInput     `json:"prompt"`
	Samples  int            `json:"num_samples"`
	Params   samplingParams `json:"sampling_params"`
	Session  string         `json:"sampling_session_id,omitempty"`
	Base     string         `json:"base_model,omitempty"` // in place of a session
	Sequence int64          `json:"seq_id"`
	Type     string         `json:"type"`
}

// sampleOutput is its result.
type sampleOutput struct {
	Sequences []Sequence `json:"sequences"`
}

// Sequence is a sampled continuation, including the stop token, if any.
type Sequence struct {
	StopReason string  `json:"stop_reason"`
	Tokens     []int32 `json:"tokens"`
	Logprobs   floats  `json:"logprobs"`
}
