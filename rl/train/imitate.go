package train

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/examples"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// imitation is the course of a run whose objective is sft: the rows of a file.
type imitation struct {
	*site
	data      *examples.Set
	settings  config.SFT
	optimizer config.Optimizer
	seed      uint64
}

// updates returns the number of updates of the run.
func (m *imitation) updates() int { return m.settings.Epochs * m.perEpoch() }

func (m *imitation) perEpoch() int {
	return (len(m.data.Train) + m.settings.Batch - 1) / m.settings.Batch
}

const exampleStream = 0x6c6573736f6e

// batch returns the examples of an update; the first is 1. Each epoch has all rows in an order of its own, which
// depends on the seed.
func (m *imitation) batch(step int) []examples.Example {
	epoch, at := (step-1)/m.perEpoch(), (step-1)%m.perEpoch()
	order := rand.New(rand.NewPCG(m.seed^exampleStream, uint64(epoch))).Perm(len(m.data.Train))
	var out []examples.Example
	for _, i := range order[at*m.settings.Batch : min((at+1)*m.settings.Batch, len(order))] {
		out = append(out, m.data.Train[i])
	}
	return out
}

// rates returns the optimizer's settings for an update.
func (m *imitation) rates(step int) rl.Optimizer {
	o := m.optimizer.Settings(step)
	warm := m.optimizer.Warmup
	o.LearningRate *= m.settings.Schedule.Factor(step-1-warm, m.updates()-warm)
	return o
}

// beginCourse checks that the rows are those that the run began with. In a new run, it measures the fresh weights.
func (m *imitation) beginCourse(ctx context.Context, s *state, resumed bool, _ []metrics.Point) (course, error) {
	for _, text := range m.data.Notes() {
		m.observer.Warning(text)
	}
	if resumed && s.Rows != m.data.Name() {
		return course{}, fmt.Errorf("%w: sft.rows is another file than when the run began; to fix: put it back, or start a "+
			"new run with --out", record.ErrOtherConfig)
	}
	s.Rows = m.data.Name()
	c := course{step: m.step, measure: m.measure, close: func() error { return nil }}
	if resumed || len(m.data.Held) == 0 {
		return c, nil
	}
	values := map[string]float64{}
	if err := m.measure(ctx, 0, values); err != nil {
		return course{}, err
	}
	return c, m.emit(metrics.Point{Step: 0, Time: m.now(), Values: values})
}

// step makes one update. One that has begun is finished, because half of one could not be saved.
func (m *imitation) step(ctx context.Context, step int, from place) (learned, error) {
	if ctx.Err() != nil {
		return learned{}, run.ErrInterrupted
	}
	start := m.now()
	batch := m.batch(step)
	o := m.rates(step)
	finishing, cancel := m.finishing(ctx)
	defer cancel()
	stats, done, err := imitate(finishing, m.trainer, examples.Complete(batch, m.settings.Mean), o)
	if err != nil {
		return learned{}, torn{err}
	}
	values := map[string]float64{
		"sft/loss": stats.Loss, "sft/epoch": float64(step) / float64(m.perEpoch()), "sft/rows": float64(len(batch)),
		"tokens/trained": float64(stats.Tokens), "optim/lr": o.LearningRate, "time/update": m.now().Sub(start).Seconds(),
		"optim/updates": 1, "optim/skipped": 0,
	}
	if !math.IsNaN(done.GradientNorm) {
		values["optim/grad_norm"] = done.GradientNorm
	}
	if done.Skipped {
		values["optim/updates"], values["optim/skipped"] = 0, 1
	}
	length := 0
	for _, e := range batch {
		length += len(e.Row.IDs)
	}
	seconds := max(m.now().Sub(start).Seconds(), 1e-9)
	values["time/step"], values["perf/trained_per_second"] = seconds, float64(stats.Tokens)/seconds
	values["perf/tokens_per_second"] = float64(length) / seconds
	return learned{values: values, place: from}, nil
}

// imitate makes one update, in the trainer's own way if it has one.
func imitate(ctx context.Context, t part.Trainer, rows []rl.Row, o rl.Optimizer) (rl.Stats, rl.StepStats, error) {
	if t.Imitate != nil {
		return t.Imitate(ctx, rows, o)
	}
	pass, err := t.ForwardBackward(ctx, rows, rl.Objective{Surrogate: rl.CrossEntropy})
	if err != nil {
		return rl.Stats{}, rl.StepStats{}, err
	}
	done, err := t.Step(ctx, o)
	return pass.Stats, done, err
}

// measure adds the loss on the rows that are held out.
func (m *imitation) measure(ctx context.Context, step int, values map[string]float64) error {
	every := m.settings.ValidateEvery
	if len(m.data.Held) == 0 || step%m.perEpoch() != 0 && (every == 0 || step%every != 0) {
		return nil
	}
	if step > 0 {
		var cancel context.CancelFunc
		ctx, cancel = m.finishing(ctx) // the update is done, and is saved only with its measurement
		defer cancel()
	}
	start := m.now()
	all := examples.Complete(m.data.Held, m.settings.Mean)
	loss := 0.0
	for rows := range slices.Chunk(all, m.settings.Batch) {
		logprobs, err := m.trainer.Forward(ctx, rows)
		if err != nil {
			return err
		}
		stats, err := rl.Loss(rows, logprobs, nil, rl.Objective{Surrogate: rl.CrossEntropy}, nil)
		if err != nil {
			return err
		}
		loss += stats.Loss
	}
	values["val/loss"], values["val/rows"], values["time/evaluate"] = loss, float64(len(all)), m.now().Sub(start).Seconds()
	return nil
}
