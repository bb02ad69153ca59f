package run

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"

	"deepswe/agent"
	"deepswe/agent/trajectory"
)

// Job identifies one attempt of a plan. Group and Index together are unique within a run.
type Job struct {
	Task string `json:"task"`
	// Group contains the attempts that are compared with each other. In an evaluation, each task is a group with
	// the task's name.
	Group string `json:"group"`
	// Index is the attempt's number in the group, from 0.
	Index int `json:"attempt"`
}

// Seed returns a random seed for one call of the attempt. It depends only on the job, the run's seed and the call's
// number, and is never negative, because some servers take it as a signed number and some as an unsigned one.
func (j Job) Seed(run uint64, call int) int64 {
	h := fnv.New64a()
	var n [8]byte
	number := func(v uint64) {
		binary.LittleEndian.PutUint64(n[:], v)
		h.Write(n[:])
	}
	number(run)
	// The length precedes each name, so that different pairs of names never give the same input.
	for _, s := range []string{j.Group, j.Task} {
		number(uint64(len(s)))
		h.Write([]byte(s))
	}
	number(uint64(j.Index))
	number(uint64(call))
	return int64(mix(h.Sum64()) >> 1)
}

// mix mixes the bits of x (the finalizer of SplitMix64, Steele et al. 2014), so that consecutive seeds give
// unrelated streams.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Plan returns k attempts at each task, task by task, so that groups are completed one after the other.
func Plan(tasks []string, k int) []Job {
	plan := make([]Job, 0, len(tasks)*k)
	for _, t := range tasks {
		for i := range k {
			plan = append(plan, Job{Task: t, Group: t, Index: i})
		}
	}
	return plan
}

// Result is the result of a rollout.
type Result struct {
	// Reward is nil if nothing was graded, or if an infrastructure failure ended the attempt.
	Reward     *float64         `json:"reward"`
	StopReason agent.StopReason `json:"stop_reason"`
	// NotGraded reports that the rollout was intentionally not graded, because nothing would be learned from it.
	// Reward is nil.
	NotGraded bool `json:"not_graded,omitempty"`
	// Turns contains what was sampled, if the Runner keeps it in memory rather than in the attempt's directory.
	Turns []trajectory.Sample `json:"turns,omitempty"`
	// Messages is the conversation as chat messages, if the Runner keeps it.
	Messages []json.RawMessage `json:"messages,omitempty"`
	Times    Times             `json:"times"`
	// Metrics are further numbers by name, of which a mean over the rollouts makes sense.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Detail belongs to the Runner; the engine does not use it.
	Detail json.RawMessage `json:"detail,omitempty"`
}

// Times is how the wall time of a rollout was spent, in seconds. The engine measures Queue, the time waiting at
// gates, and Total; the Runner measures the others. No second counts twice, so that the parts are at most Total.
type Times struct {
	Queue       float64 `json:"queue"`
	Model       float64 `json:"model"`
	Environment float64 `json:"environment"`
	Reward      float64 `json:"reward"`
	Total       float64 `json:"total"`
}

// Other is the time that was spent on none of the parts.
func (t Times) Other() float64 { return max(0, t.Total-t.Queue-t.Model-t.Environment-t.Reward) }

// Runner plays one rollout. It must be safe for concurrent use.
//
// The context ends at the attempt's deadline or when the run is abandoned. The Runner should then return soon, if
// possible with a Result that says so (agent.Timeout, agent.Interrupted). An error is an infrastructure failure:
// the rollout has no reward and is retried, unless the error is an [Abort].
type Runner interface {
	Run(ctx context.Context, j Job) (Result, error)
}

// RunnerFunc is a function that implements Runner.
type RunnerFunc func(ctx context.Context, j Job) (Result, error)

// Run calls f.
func (f RunnerFunc) Run(ctx context.Context, j Job) (Result, error) { return f(ctx, j) }

// Outcome is how an attempt ended.
type Outcome struct {
	Job
	Result
	// Err is the failure of the last try; empty if the Runner returned a result.
	Err string `json:"error,omitempty"`
	// Tries is how often the Runner was called.
	Tries int `json:"tries"`
	// Replayed reports that the outcome comes from the journal.
	Replayed bool `json:"-"`
}

// Failed reports an infrastructure failure: the rollout has no reward and says nothing about the policy.
func (o Outcome) Failed() bool { return o.Err != "" }
