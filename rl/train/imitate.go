package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl"
	"deepswe/rl/metrics"
)

// imitation is a run whose objective is sft.
type imitation struct {
	config   Config
	lesson   *lesson
	trainer  rl.Trainer
	dir      *run.Dir
	sink     metrics.Sink
	observer Observer
	log      *slog.Logger
	now      func() time.Time

	guard guard
	saved int // the step that state.json has
}

// imitationState is the state that a run resumes from. It is written after the trainer's checkpoint that it names.
type imitationState struct {
	Step       int      `json:"step"`
	Checkpoint string   `json:"checkpoint"`
	Kept       []string `json:"kept"`
	// Rows identifies the examples.
	Rows string `json:"rows"`
}

// imitator is a trainer with a cheaper way to make an update of cross-entropy than ForwardBackward and Step.
type imitator interface {
	Imitate(ctx context.Context, rows []rl.Row, o rl.Optimizer) (rl.Stats, rl.StepStats, error)
}

// updates returns the number of updates of the run.
func (m *imitation) updates() int { return m.config.SFT.Epochs * m.perEpoch() }

func (m *imitation) perEpoch() int {
	return (len(m.lesson.train) + m.config.SFT.Batch - 1) / m.config.SFT.Batch
}

const lessonStream = 0x6c6573736f6e

// batch returns the examples of an update; the first is 1. Each epoch has all rows in an order of its own, which
// depends on the seed.
func (m *imitation) batch(step int) []*example {
	epoch, at := (step-1)/m.perEpoch(), (step-1)%m.perEpoch()
	order := rand.New(rand.NewPCG(m.config.Seed^lessonStream, uint64(epoch))).Perm(len(m.lesson.train))
	var out []*example
	for _, i := range order[at*m.config.SFT.Batch : min((at+1)*m.config.SFT.Batch, len(order))] {
		out = append(out, &m.lesson.train[i])
	}
	return out
}

// optimizer returns the optimizer's settings for an update.
func (m *imitation) optimizer(step int) rl.Optimizer {
	o := m.config.Optimizer.rl(step, Stage{})
	warm := m.config.Optimizer.Warmup
	o.LearningRate *= m.config.SFT.Schedule.factor(step-1-warm, m.updates()-warm)
	return o
}

// run learns until all epochs are done. When ctx ends, the update under way is finished and saved, and the error wraps
// run.ErrInterrupted. A run that is resumed from there, or after a kill from the last checkpoint, makes the same
// updates as an uninterrupted run.
func (m *imitation) run(ctx context.Context, s imitationState, resumed bool, history []metrics.Point) error {
	m.guard = guard{settings: m.config.Guards}
	m.saved = s.Step
	if resumed {
		if s.Rows != m.lesson.name() {
			return fmt.Errorf("%w: sft.rows is another file than when the run began; to fix: put it back, or start a new run "+
				"with --out", ErrOtherConfig)
		}
		if err := m.trainer.Load(ctx, s.Checkpoint); err != nil {
			return fmt.Errorf("train: %w", err)
		}
	} else if len(m.lesson.held) > 0 {
		values := map[string]float64{}
		if err := m.validate(ctx, values); err != nil {
			return fmt.Errorf("train: %w", err)
		}
		if err := m.emit(metrics.Point{Step: 0, Time: m.now(), Values: values}); err != nil {
			return err
		}
	}
	for _, p := range history {
		_, _ = m.guard.observe(p) // a value that stopped the run before does not stop it again
	}
	s.Rows = m.lesson.name()
	for s.Step < m.updates() {
		step := s.Step + 1
		err := m.next(ctx, &s)
		if err == nil && ctx.Err() != nil && s.Step < m.updates() {
			err = run.ErrInterrupted
		}
		if err == nil {
			continue
		}
		err = fmt.Errorf("train: step %d: %w", step, err)
		if errors.Is(err, run.ErrInterrupted) || errors.Is(err, ErrGuard) {
			saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
			defer cancel()
			err = errors.Join(err, m.save(saving, &s))
		}
		return err
	}
	return nil
}

// next makes one update and, if it is due, validates and saves.
func (m *imitation) next(ctx context.Context, s *imitationState) error {
	if ctx.Err() != nil {
		return run.ErrInterrupted
	}
	// An update that has begun is finished, because half of one could not be saved.
	ctx = context.WithoutCancel(ctx)
	step, start := s.Step+1, m.now()
	batch := m.batch(step)
	o := m.optimizer(step)
	stats, done, err := imitate(ctx, m.trainer, m.config.SFT.Mean.batch(batch), o)
	if err != nil {
		return err
	}
	values := map[string]float64{
		"sft/loss": stats.Loss, "sft/epoch": float64(step) / float64(m.perEpoch()), "sft/rows": float64(len(batch)),
		"tokens/trained": float64(stats.Tokens), "optim/lr": o.LearningRate, "time/update": m.now().Sub(start).Seconds(),
		"optim/updates": 1, "optim/skipped": 0, "optim/grad_norm": done.GradientNorm,
	}
	if done.Skipped {
		values["optim/updates"], values["optim/skipped"] = 0, 1
	}
	length := 0
	for _, e := range batch {
		length += len(e.row.IDs)
	}
	seconds := max(m.now().Sub(start).Seconds(), 1e-9)
	values["time/step"], values["perf/trained_per_second"] = seconds, float64(stats.Tokens)/seconds
	values["perf/tokens_per_second"] = float64(length) / seconds
	for name, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) { // JSON cannot represent it
			delete(values, name)
		}
	}
	every := m.config.SFT.ValidateEvery
	if len(m.lesson.held) > 0 && (step%m.perEpoch() == 0 || every > 0 && step%every == 0) {
		if err := m.validate(ctx, values); err != nil {
			return err
		}
	}
	p := metrics.Point{Step: step, Time: m.now(), Values: values}
	if err := m.emit(p); err != nil {
		return err
	}
	s.Step = step
	warnings, stop := m.guard.observe(p)
	for _, w := range warnings {
		m.log.Warn(w, "step", step)
		m.observer.Warning(fmt.Sprintf("step %d: %s", step, w))
	}
	if stop != nil {
		return stop
	}
	if step == m.updates() || step%m.config.Checkpoint.Every == 0 {
		return m.save(ctx, s)
	}
	return nil
}

// imitate makes one update, in the trainer's own way if it has one.
func imitate(ctx context.Context, t rl.Trainer, rows []rl.Row, o rl.Optimizer) (rl.Stats, rl.StepStats, error) {
	if own, ok := t.(imitator); ok {
		return own.Imitate(ctx, rows, o)
	}
	stats, err := t.ForwardBackward(ctx, rows, rl.Objective{Surrogate: rl.CrossEntropy})
	if err != nil {
		return stats, rl.StepStats{}, err
	}
	done, err := t.Step(ctx, o)
	return stats, done, err
}

// validate adds the loss on the rows that are held out.
func (m *imitation) validate(ctx context.Context, values map[string]float64) error {
	start := m.now()
	all := make([]*example, len(m.lesson.held))
	tokens := 0
	for i := range m.lesson.held {
		all[i] = &m.lesson.held[i]
		tokens += all[i].trained()
	}
	loss := 0.0
	for part := range slices.Chunk(all, max(m.config.SFT.Batch, 1)) {
		rows := make([]rl.Row, len(part))
		for i, e := range part {
			rows[i] = e.complete(1 / float64(tokens))
			if m.config.SFT.Mean == OverRows {
				rows[i].Scale = 1 / float64(len(all)) / float64(e.trained())
			}
		}
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

// save writes a checkpoint, and the state with which the run resumes from it.
func (m *imitation) save(ctx context.Context, s *imitationState) error {
	if m.saved == s.Step {
		return nil
	}
	next := *s
	next.Checkpoint = checkpointName(s.Step)
	if err := m.trainer.Save(ctx, next.Checkpoint); err != nil {
		return err
	}
	next.Kept = append(slices.Clone(s.Kept), next.Checkpoint)
	old := slices.Clone(next.Kept[:max(0, len(next.Kept)-m.config.Checkpoint.Keep)])
	// The state must not be newer than the metrics on the disk.
	if err := m.sink.Sync(); err != nil {
		return err
	}
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := disk.WriteFile(m.dir.Path(stateFile), append(data, '\n')); err != nil {
		return err
	}
	*s, m.saved = next, next.Step
	// Only in memory: a run that is killed before the old ones are removed removes them the next time.
	s.Kept = next.Kept[len(old):]
	for _, name := range old {
		if err := m.trainer.Remove(ctx, name); err != nil {
			return err
		}
	}
	return m.dir.Note("checkpoint", map[string]int{"step": s.Step})
}

func (m *imitation) emit(p metrics.Point) error {
	if err := m.sink.Write(p); err != nil {
		return err
	}
	m.observer.Point(p)
	return nil
}

// readImitationState returns false for a run without a checkpoint.
func readImitationState(dir *run.Dir) (s imitationState, found bool, err error) {
	err = disk.ReadJSON(dir.Path(stateFile), &s)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	return s, err == nil, err
}
