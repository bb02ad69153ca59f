package run

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"sync/atomic"
	"time"

	"deepswe/agent"
	"deepswe/agent/trajectory"
)

// Job names one attempt of a plan. Group and Index together are unique within a run.
type Job struct {
	Task string `json:"task"`
	// Group holds the attempts that are compared with each other. An evaluation has one group a task, named like it.
	Group string `json:"group"`
	// Index counts the attempts of the group from 0.
	Index int `json:"attempt"`
}

// Seed is a random seed for one call of the attempt, the same in every run with the same run seed, whatever ran before.
// It is never negative: servers take it as a signed number or an unsigned one.
func (j Job) Seed(run uint64, call int) int64 {
	h := fnv.New64a()
	var n [8]byte
	number := func(v uint64) {
		binary.LittleEndian.PutUint64(n[:], v)
		h.Write(n[:])
	}
	number(run)
	// Each name comes after its length, so that no two pairs of names hash alike.
	for _, s := range []string{j.Group, j.Task} {
		number(uint64(len(s)))
		h.Write([]byte(s))
	}
	number(uint64(j.Index))
	number(uint64(call))
	return int64(mix(h.Sum64()) >> 1)
}

// mix spreads every bit of x over the whole word (the finalizer of SplitMix64, Steele et al. 2014): seeds that differ
// by one are to give streams that have nothing in common.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Plan lists k attempts at each task, task by task, so that groups are complete one after the other.
func Plan(tasks []string, k int) []Job {
	plan := make([]Job, 0, len(tasks)*k)
	for _, t := range tasks {
		for i := range k {
			plan = append(plan, Job{Task: t, Group: t, Index: i})
		}
	}
	return plan
}

// Result is what a rollout yields.
type Result struct {
	// Reward is nil where there is none: nothing was graded, or an infrastructure failure ended the attempt.
	Reward     *float64         `json:"reward"`
	StopReason agent.StopReason `json:"stop_reason"`
	// NotGraded is set where the rollout was not graded on purpose, because nothing is learned from it. Reward is nil.
	NotGraded bool `json:"not_graded,omitempty"`
	// Turns is what was sampled, for rollouts that keep it in memory rather than in their directory.
	Turns []trajectory.Sample `json:"turns,omitempty"`
	// Messages is the conversation as chat messages, where the runner keeps it.
	Messages []json.RawMessage `json:"messages,omitempty"`
	Times    Times             `json:"times"`
	// Metrics are further numbers worth a mean over the rollouts, by name.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Detail is the Runner's own; the engine does not look inside.
	Detail json.RawMessage `json:"detail,omitempty"`
}

// Times is how the wall time of a rollout was spent, in seconds. Queue, the time spent waiting at gates, and Total are
// measured by the engine; the others by the Runner.
type Times struct {
	Queue       float64 `json:"queue"`
	Model       float64 `json:"model"`
	Environment float64 `json:"environment"`
	Reward      float64 `json:"reward"`
	Total       float64 `json:"total"`
}

// Runner plays one rollout. It is called from many goroutines.
//
// The context ends at the attempt's deadline, and when the run is abandoned; the Runner returns soon after either, if
// it can with a Result that says so (agent.Timeout, agent.Interrupted). An error is an infrastructure failure: the
// rollout has no reward and is tried again, unless the error is an [Abort].
type Runner interface {
	Run(ctx context.Context, j Job) (Result, error)
}

// RunnerFunc is a function that is a Runner.
type RunnerFunc func(ctx context.Context, j Job) (Result, error)

// Run calls f.
func (f RunnerFunc) Run(ctx context.Context, j Job) (Result, error) { return f(ctx, j) }

// Outcome is how an attempt ended.
type Outcome struct {
	Job
	Result
	// Err is why there is no reward: the failure of the last try. Empty where the Runner returned a result.
	Err string `json:"error,omitempty"`
	// Tries counts the calls of the Runner.
	Tries int `json:"tries"`
	// Replayed is set where the outcome was found in the journal.
	Replayed bool `json:"-"`
}

// Failed reports an infrastructure failure: the rollout has no reward and says nothing about the policy.
func (o Outcome) Failed() bool { return o.Err != "" }

// Gates bound what a run does at once. A nil gate is no bound.
type Gates struct {
	// Model bounds calls of the model, Sandbox the sandboxes of agents, Grading those in which patches are graded. A
	// rollout may hold its sandbox while it waits for a model or for grading, never the other way round.
	Model   *Gate
	Sandbox *Gate
	Grading *Gate
}

// Gate lets a bounded number in at a time, first come, first served.
type Gate struct{ places chan struct{} }

// NewGate returns a gate for n at a time, nil when n is not positive.
func NewGate(n int) *Gate {
	if n <= 0 {
		return nil
	}
	return &Gate{make(chan struct{}, n)}
}

// Enter waits for a place. The caller calls leave once, when it is done. The time spent waiting is charged to the
// rollout whose context it is. The error is the context's.
func (g *Gate) Enter(ctx context.Context) (leave func(), err error) {
	if g == nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return func() {}, nil
	}
	start := time.Now()
	select {
	case g.places <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if w, ok := ctx.Value(waitKey{}).(*atomic.Int64); ok {
		w.Add(int64(time.Since(start)))
	}
	return func() { <-g.places }, nil
}

// waitKey holds the *atomic.Int64 in a rollout's context that counts the nanoseconds spent at gates.
type waitKey struct{}

// Guard returns the model behind the gate.
func (g *Gate) Guard(m agent.Model) agent.Model { return guarded{gate: g, model: m} }

type guarded struct {
	gate  *Gate
	model agent.Model
}

func (g guarded) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	leave, err := g.gate.Enter(ctx)
	if err != nil {
		return agent.Reply{}, err
	}
	defer leave()
	return g.model.Complete(ctx, r)
}
