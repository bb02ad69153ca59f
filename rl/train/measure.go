package train

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/train/part"
)

// describe adds the metrics of engine and environment: means over the rollouts that did not fail, graded or not, and
// the numbers of failed attempts. Names without a slash get the prefix rollout/.
func describe(values map[string]float64, outcomes []run.Outcome, source func(task string) string) {
	sums, counts := map[string]float64{}, map[string]float64{}
	add := func(name string, v float64) {
		sums[name] += v
		counts[name]++
	}
	var totals []float64
	for _, o := range outcomes {
		for name, v := range o.Metrics {
			if strings.HasPrefix(name, retryPrefix) {
				values[name] += v
			}
		}
		if o.Reward == nil && !o.NotGraded {
			continue
		}
		if source != nil && o.Reward != nil {
			add("reward/repo/"+source(o.Task), *o.Reward)
		}
		t := o.Times
		add("time/model", t.Model)
		add("time/environment", t.Environment)
		add("time/reward", t.Reward)
		add("time/queue", t.Queue)
		add("time/other", t.Other())
		add("time/rollout", t.Total)
		totals = append(totals, t.Total)
		for name, v := range o.Metrics {
			switch {
			case strings.HasPrefix(name, retryPrefix):
			case strings.HasSuffix(name, part.SumEnd), strings.HasSuffix(name, part.OfEnd):
				sums[name] += v
			case strings.Contains(name, "/"):
				add(name, v)
			default:
				add("rollout/"+name, v)
			}
		}
	}
	for name, sum := range sums {
		if share, ok := strings.CutSuffix(name, part.SumEnd); ok {
			values[share] = sum / sums[share+part.OfEnd]
		} else if n := counts[name]; n > 0 {
			values[name] = sum / n
		}
	}
	rl.Quantiles(values, "time/rollout", totals)
}

// entropyMetric is the entropy of the sampler's policy, in nats a token.
const entropyMetric = "entropy/sampled"

// entropy adds its estimate, the mean of the sampled tokens' negative log-probabilities.
func entropy(values map[string]float64, rollouts []rl.Rollout) {
	sum, n := 0.0, 0
	for _, r := range rollouts {
		for _, t := range r.Turns {
			for _, logprob := range t.Logprobs {
				sum -= logprob
			}
			n += len(t.Logprobs)
		}
	}
	if n > 0 {
		values[entropyMetric] = sum / float64(n)
	}
}

// speeds adds the metrics per second of a step. values must contain its other metrics.
func speeds(values map[string]float64, step time.Duration) {
	s := step.Seconds()
	if s <= 0 {
		return
	}
	graded := values["rollouts/total"] - values["rollouts/no_reward"]
	values["perf/tokens_per_second"] = values["length/mean"] * graded / s
	values["perf/sampled_per_second"] = values["tokens/sampled/mean"] * graded / s
	values["perf/trained_per_second"] = values["tokens/trained"] / s
	values["trainer/waiting"] = values["time/wait_rollouts"] / s
	values["trainer/busy"] = (values["time/update"] + values["time/publish"]) / s
}

// retryPrefix is the prefix of the metrics that count failed tries by cause.
const retryPrefix = "retries/"

// causeOf returns the cause of a failed try in one word. ctx is the context of the try.
func causeOf(ctx context.Context, err error) string {
	switch {
	case errors.Is(context.Cause(ctx), run.ErrDeadline):
		return "deadline"
	case errors.Is(err, agent.ErrModelUnavailable):
		return "model"
	}
	return "sandbox"
}

// occupancy measures how many workers have a rollout, over time.
type occupancy struct {
	now     func() time.Time
	workers int

	mu    sync.Mutex
	held  map[run.Job]bool
	begun time.Time // start of the interval
	since time.Time // time of the last change
	busy  time.Duration
}

func newOccupancy(workers int, now func() time.Time) *occupancy {
	return &occupancy{now: now, workers: workers, held: map[run.Job]bool{}, begun: now(), since: now()}
}

// observeEvent records an event of the engine.
func (o *occupancy) observeEvent(e run.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count()
	switch e.Kind {
	case run.Started:
		o.held[e.Job] = true
	case run.Released, run.Finished, run.Failed:
		delete(o.held, e.Job)
	}
}

// count adds the time since the last change. The caller holds o.mu.
func (o *occupancy) count() {
	now := o.now()
	o.busy += time.Duration(len(o.held)) * now.Sub(o.since)
	o.since = now
}

// takeShare returns the share of the workers' time spent on rollouts since the last call.
func (o *occupancy) takeShare() float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count()
	wall := o.since.Sub(o.begun).Seconds() * float64(o.workers)
	busy := o.busy.Seconds()
	o.begun, o.busy = o.since, 0
	if wall <= 0 {
		return 0
	}
	return min(1, busy/wall)
}

// maxSources is the maximum number of sources with a metric of their own.
const maxSources = 20

// frequent returns a function that groups tasks by their source for a metric. It returns the source of a task if that
// is one of the sources with the most tasks, else "other". It is nil if no task has a source.
func frequent(tasks []string, source func(task string) string) func(task string) string {
	count := map[string]int{}
	for _, t := range tasks {
		if s := source(t); s != "" {
			count[s]++
		}
	}
	if len(count) == 0 {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	names = names[:min(len(names), maxSources)]
	return func(task string) string {
		if s := source(task); slices.Contains(names, s) {
			return strings.ReplaceAll(s, "/", "__")
		}
		return "other"
	}
}
