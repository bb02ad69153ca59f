package trainertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepswe/rl"
	"deepswe/rl/trainer/embedded"
)

// future is a queued operation. The server's mutex guards its fields, except for done.
type future struct {
	number    int
	operation string
	model     string
	body      body

	ended  bool
	status int
	result any
	text   string
	done   chan struct{}
}

func (f *future) id() string { return strconv.Itoa(f.number) }

func (f *future) end(result any) {
	f.ended, f.status, f.result = true, http.StatusOK, result
	close(f.done)
}

func (f *future) fail(status int, text string) {
	f.ended, f.status, f.text = true, status, text
	close(f.done)
}

// queue accepts an operation. The caller holds s.mu.
func (s *Server) queue(operation string, b body) *future {
	f := &future{
		number: s.before + len(s.futures) + 1, operation: operation, model: b.Model, body: b, done: make(chan struct{}),
	}
	if operation == "optim_step" && slices.ContainsFunc(s.open, func(o *future) bool {
		return !o.ended && o.model == f.model && o.operation == "forward_backward" && !s.isRepeat(o)
	}) {
		s.problems = append(s.problems, "an optim_step was posted while a forward_backward was not finished")
	}
	s.futures, s.open = append(s.futures, f), append(s.open, f)
	if operation == "create_model" || f.number >= s.remembered {
		if err := s.remember(); err != nil {
			s.problems = append(s.problems, err.Error())
		}
	}
	s.changed.Broadcast()
	return f
}

// isRepeat reports whether an operation repeats an earlier one: its request arrived twice, and the client knows of the
// first time only. The caller holds s.mu.
func (s *Server) isRepeat(f *future) bool {
	number := f.body.Sequence
	return number != nil && slices.ContainsFunc(s.futures[:f.number-s.before-1], func(o *future) bool {
		other := o.body.Sequence
		return o.model == f.model && o.operation == f.operation && other != nil && *other == *number
	})
}

// run executes what is queued, in passes: gradients first, then forward passes, samples and everything else.
func (s *Server) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		s.open = slices.DeleteFunc(s.open, func(f *future) bool { return f.ended })
		for !s.closed && !slices.ContainsFunc(s.open, due) {
			s.changed.Wait()
		}
		if s.closed {
			return
		}
		s.expire()
		for _, kind := range []string{"forward_backward", "forward", "sample", ""} {
			for _, f := range s.open {
				if due(f) && (kind == f.operation || kind == "") {
					s.execute(f)
				}
			}
		}
	}
}

// due reports whether an operation can be executed. An empty batch never is.
func due(f *future) bool {
	empty := f.body.Backward != nil && len(f.body.Backward.Data) == 0 ||
		f.body.Forward != nil && len(f.body.Forward.Data) == 0 || f.operation == "sample" && f.body.Samples == 0
	return !f.ended && !empty
}

// expire unloads the models of sessions that are silent.
func (s *Server) expire() {
	if s.options.SessionTimeout == 0 {
		return
	}
	for id, m := range s.models {
		if seen := s.sessions[m.session].seen; !seen.IsZero() && time.Since(seen) > s.options.SessionTimeout {
			s.unload(id)
		}
	}
}

// unload frees a model's place, and leaves its gradient there, as SkyRL's JAX backend does.
func (s *Server) unload(id string) {
	m := s.models[id]
	if m != nil && !s.options.Sums {
		s.left[m.place] = m.gradient
	}
	delete(s.models, id)
	if s.options.TuFT {
		maps.DeleteFunc(s.saved, func(address string, _ checkpoint) bool {
			return strings.HasPrefix(address, "tinker://"+id+"/")
		})
	}
}

// execute does one operation. The caller holds s.mu.
func (s *Server) execute(f *future) {
	m := s.models[f.model]
	numbered := s.options.TuFT && m != nil && f.body.Sequence != nil && f.operation != "sample"
	if numbered {
		next := m.done + 1
		if n := *f.body.Sequence; n != next && (n != next+1 || m.failed != next) {
			f.fail(http.StatusConflict, fmt.Sprintf("Sequence conflict: expected %d, got %d.", next, n))
			return
		}
		m.done = *f.body.Sequence - 1
	}
	result, err := s.attempt(f)
	switch {
	case f.ended:
	case err != nil && s.options.TuFT:
		if numbered {
			m.failed = *f.body.Sequence
		}
		f.fail(http.StatusUnprocessableEntity, "Future failed: Server error: "+err.Error())
	case err != nil:
		f.fail(http.StatusBadRequest, err.Error())
	default:
		if numbered {
			m.done++
		}
		s.counts[f.operation]++
		f.end(result)
	}
}

// attempt does an operation, or fails as a test wants.
func (s *Server) attempt(f *future) (any, error) {
	if fault, ok := s.takeFault(failing + f.operation); ok {
		return nil, errors.New(fault.Detail)
	}
	return s.do(f)
}

// said is an error in the real server's words.
func said(format string, args ...any) error { return fmt.Errorf(format, args...) }

func (s *Server) do(f *future) (any, error) {
	b := f.body
	m := s.models[f.model]
	if f.operation == "create_model" {
		return s.load(f.model, b)
	}
	if m == nil {
		return s.doWithoutModel(f)
	}
	if f.operation != "load_weights" && f.operation != "sample" {
		m.loads = true
	}
	switch f.operation {
	case "forward":
		return m.pass(b.Forward, false, s.options.Sums)
	case "forward_backward":
		_, ignored := s.takeFault(idle + f.operation)
		return m.pass(b.Backward, !ignored, s.options.Sums)
	case "optim_step":
		return m.step(b.Adam, s.options.Sums)
	case "sample":
		if s.options.Whole && b.Base == "" {
			return nil, said("vLLM /v1/completions returned 404: The model `%s` does not exist.", f.model)
		}
		return m.sample(s.samplers[b.SamplingSession], b)
	case "save_weights":
		return s.write(m, f)
	case "save_weights_for_sampler":
		return s.publish(m, f)
	case "load_weights":
		k := s.saved[b.Path]
		if k.rank != m.rank {
			return nil, fmt.Errorf("rank mismatch: checkpoint has rank %d, model configured with rank %d", k.rank, m.rank)
		}
		return map[string]string{"type": f.operation}, m.policy.Load(context.Background(), fileName(b.Path))
	case "unload_model":
		s.unload(f.model)
		return map[string]any{"model_id": f.model, "status": "unloaded", "type": f.operation}, nil
	}
	return nil, fmt.Errorf("unknown operation %s", f.operation)
}

// doWithoutModel does an operation on a model that is not loaded.
func (s *Server) doWithoutModel(f *future) (any, error) {
	switch {
	case f.operation == "unload_model":
		return map[string]any{"model_id": f.model, "status": "unloaded", "type": f.operation}, nil
	case f.operation == "sample" && s.options.Whole: // the engines were the lost model's
		return nil, said("Cannot connect to host 10.0.0.1:8001 ssl:default [Connect call failed ('10.0.0.1', 8001)]")
	}
	return nil, said("Model %s not loaded", f.model)
}

func (s *Server) load(id string, b body) (any, error) {
	switch {
	case b.LoRA.Rank < 1 && !s.options.Whole || b.LoRA.Rank > s.options.MaxRank:
		return nil, fmt.Errorf("LoRA rank %d must be between 1 and %d", b.LoRA.Rank, s.options.MaxRank)
	case len(s.models) >= s.options.MaxModels:
		return nil, said("Maximum number of LoRA adapters (%d) reached", s.options.MaxModels+1)
	}
	p, err := embedded.New(embedded.Options{
		Language: s.options.Language, Hidden: s.options.Hidden, Seed: uint64(b.LoRA.Seed), Dir: s.dir, Workers: 1,
	})
	if err != nil {
		return nil, err
	}
	m := &model{policy: p, speech: s.options.Speech, session: b.Session, rank: b.LoRA.Rank}
	for slices.ContainsFunc(slices.Collect(maps.Values(s.models)), func(o *model) bool { return o.place == m.place }) {
		m.place++
	}
	for _, g := range s.left[m.place] {
		if err := m.accumulate(g); err != nil {
			return nil, err
		}
	}
	s.models[id] = m
	return map[string]any{"model_id": id, "base_model": s.options.Base, "lora_config": map[string]any{
		"rank": b.LoRA.Rank, "alpha": 32.0, "seed": b.LoRA.Seed, "train_attn": true, "train_mlp": true,
		"train_unembed": false}}, nil
}

// pass computes log-probabilities and, if backward is set, accumulates a gradient.
func (m *model) pass(in *passBody, backward, sums bool) (any, error) {
	var outputs []any
	for _, d := range in.Data {
		if d.Inputs.Targets == nil || len(d.Inputs.Targets.Data) == 0 {
			return nil, fmt.Errorf("no targets")
		}
		input, targets := d.Input.ids(), d.Inputs.Targets.Data
		if len(input) != len(targets) {
			return nil, fmt.Errorf("sequence length %d exceeds max_length %d", len(targets), len(input))
		}
		ids := m.speech.read(append(slices.Clone(input), targets[len(targets)-1]))
		scored, err := m.policy.Score(ids)
		if err != nil {
			return nil, err
		}
		logprobs := scored[1:]
		at := func(v *numbers, t int, or float64) float64 {
			if v == nil || t >= len(v.Data) {
				return or
			}
			return v.Data[t]
		}
		losses, slope, total := make([]float64, len(targets)), make([]float64, len(ids)), 0.0
		for t := range targets {
			w := at(d.Inputs.Weights, t, 1)
			total += w
			loss, dloss, err := lossOf(in.Loss, logprobs[t], at(d.Inputs.Logprobs, t, 0), at(d.Inputs.Advantages, t, 0))
			if err != nil {
				return nil, err
			}
			losses[t] = w * loss
			if w != 0 && !math.IsNaN(dloss) {
				slope[t+1] = w * dloss
			}
		}
		if !sums {
			for t := range slope {
				slope[t] /= max(total, 1e-9)
			}
		}
		if backward {
			if err := m.accumulate(contribution{ids, slope}); err != nil {
				return nil, err
			}
		}
		outputs = append(outputs, map[string]any{"elementwise_loss": tensorOf(losses), "logprobs": tensorOf(logprobs)})
	}
	return map[string]any{"loss_fn_output_type": "scalar", "loss_fn_outputs": outputs, "metrics": map[string]any{}}, nil
}

func (m *model) accumulate(c contribution) error {
	m.gradient = append(m.gradient, c)
	return m.policy.Accumulate(c.ids, c.slope)
}

// lossOf is the loss of one token and its derivative.
func lossOf(name string, logprob, old, advantage float64) (loss, slope float64, err error) {
	ratio := math.Exp(logprob - old)
	switch name {
	case "cross_entropy":
		return -logprob, -1, nil
	case "importance_sampling":
		return -ratio * advantage, -ratio * advantage, nil
	case "ppo":
		clipped := min(max(ratio, 0.8), 1.2) * advantage
		if clipped < ratio*advantage {
			return -clipped, 0, nil
		}
		return -ratio * advantage, -ratio * advantage, nil
	}
	return 0, 0, fmt.Errorf("loss %q is not supported", name)
}

// tensorOf writes numbers as the real server does: in single precision, and NaN as null.
func tensorOf(v []float64) map[string]any {
	data := make([]any, len(v))
	for i, x := range v {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			data[i] = float32(x)
		}
	}
	return map[string]any{"data": data, "dtype": "float32", "shape": []int{len(v)}}
}

func (m *model) step(a *adamBody, sums bool) (any, error) {
	o := rl.Optimizer{
		LearningRate: a.LearningRate, Beta1: a.Beta1, Beta2: a.Beta2, Epsilon: a.Epsilon, WeightDecay: a.WeightDecay,
	}
	if !sums && len(m.gradient) > 0 {
		o.Scale = 1 / float64(len(m.gradient))
	}
	m.gradient = nil
	stats, err := m.policy.Step(context.Background(), o)
	return map[string]any{"metrics": map[string]any{
		"skyrl.ai/grad_norm": stats.GradientNorm, "skyrl.ai/learning_rate": float64(float32(a.LearningRate))}}, err
}

// sample samples the session that was loaded last from the weights as they are now, and loads any other session over
// them.
func (m *model) sample(from samplingSession, b body) (any, error) {
	policy := from.policy
	var err error
	switch {
	case from.stale:
	case m.loaded == b.SamplingSession:
		policy, err = m.policy.Publish(context.Background())
	default:
		m.loaded, err = b.SamplingSession, m.policy.Restore(policy)
	}
	if err != nil {
		return nil, err
	}
	var sequences []any
	for i := range b.Samples {
		seed := int64(i)
		if b.Params.Seed != nil {
			seed += *b.Params.Seed
		}
		prompt := m.speech.read(b.Prompt.ids())
		ids, logprobs, err := m.policy.Generate(policy, prompt, b.Params.MaxTokens, b.Params.Temperature, seed)
		if err != nil {
			return nil, err
		}
		ids = m.speech.write(ids)
		reason := "length"
		if slices.Contains(b.Params.Stop, ids[len(ids)-1]) {
			reason = "stop"
		}
		sequences = append(sequences, map[string]any{
			"stop_reason": reason, "tokens": ids, "logprobs": tensorOf(logprobs)["data"]})
	}
	return map[string]any{"sequences": sequences, "prompt_logprobs": nil, "topk_prompt_logprobs": nil}, nil
}
