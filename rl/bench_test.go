package rl_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"deepswe/rl"
	"deepswe/rl/rowfile"
)

// benchmarkBatch returns 64 groups of 8 rollouts of 32k tokens each, in the given number of turns, whose prompts repeat
// the history. In one turn that is 512 * (4096 + 28672) tokens.
func benchmarkBatch(turns int) []rl.Rollout {
	const prompt, total = 4096, 32768
	rng := rand.New(rand.NewPCG(1, uint64(turns)))
	rollouts := make([]rl.Rollout, 512)
	for i := range rollouts {
		reward := float64(rng.IntN(2))
		r := rl.Rollout{Task: fmt.Sprintf("task-%d", i/8), Group: "0", Attempt: i % 8, Reward: &reward,
			StopReason: "submitted", PolicyVersion: "3"}
		all := make([]int32, total)
		for k := range all {
			all[k] = rng.Int32N(152000)
		}
		step := (total - prompt) / turns
		for k := range turns {
			from, to := prompt+k*step, prompt+(k+1)*step
			if turns > 1 {
				from += step / 2
			}
			t := rl.Turn{PromptIDs: slices.Clone(all[:from]), CompletionIDs: slices.Clone(all[from:to]),
				Logprobs: make([]float64, to-from)}
			for p := range t.Logprobs {
				t.Logprobs[p] = -rng.ExpFloat64()
			}
			r.Turns = append(r.Turns, t)
		}
		rollouts[i] = r
	}
	return rollouts
}

func size(rollouts []rl.Rollout) (bytes int64) {
	for _, r := range rollouts {
		for _, t := range r.Turns {
			bytes += int64(4*len(t.PromptIDs) + 4*len(t.CompletionIDs) + 8*len(t.Logprobs))
		}
	}
	return bytes
}

func grpo(b *testing.B) rl.Algorithm {
	a, err := rl.Preset(rl.DefaultPreset)
	if err != nil {
		b.Fatal(err)
	}
	a.MaxLength = 32768
	return a
}

// watchHeap samples the heap while a benchmark runs, and returns its peak.
func watchHeap(b *testing.B) (peak func() int64) {
	var most atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), int64(m.HeapAlloc)))
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	return func() int64 {
		close(stop)
		<-stopped
		return most.Load()
	}
}

// BenchmarkBatch measures rows, advantages and loss of 512 rollouts of 32k tokens. "peak/data" is the largest heap,
// including the rollouts and the logprobs of the current policy, divided by the size of the rollouts.
func BenchmarkBatch(b *testing.B) {
	for _, turns := range []int{1, 40} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			rollouts := benchmarkBatch(turns)
			a := grpo(b)
			peak := watchHeap(b)
			var rowTime, lossTime time.Duration
			for b.Loop() {
				b.StopTimer()
				runtime.GC()
				b.StartTimer()
				start := time.Now()
				rows, _, err := a.Rows(rollouts)
				if err != nil {
					b.Fatal(err)
				}
				rowTime += time.Since(start)
				b.StopTimer()
				current := make([][]float64, len(rows))
				for i := range rows {
					current[i] = slices.Clone(rows[i].Logprobs)
				}
				b.StartTimer()
				start = time.Now()
				if _, err := rl.Loss(rows, current, nil, a.Objective, current); err != nil {
					b.Fatal(err)
				}
				lossTime += time.Since(start)
			}
			b.ReportMetric(float64(peak())/float64(size(rollouts)), "peak/data")
			b.ReportMetric(rowTime.Seconds()/float64(b.N), "s-rows/op")
			b.ReportMetric(lossTime.Seconds()/float64(b.N), "s-loss/op")
		})
	}
}

// BenchmarkFile measures a part of that batch with files: reading the rollouts, and the whole export.
func BenchmarkFile(b *testing.B) {
	for _, turns := range []int{1, 40} {
		rollouts := benchmarkBatch(turns)[:64]
		var file bytes.Buffer
		for i := range rollouts {
			if err := rowfile.WriteRollout(&file, &rollouts[i]); err != nil {
				b.Fatal(err)
			}
		}
		path := filepath.Join(b.TempDir(), "rollouts.jsonl")
		if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
			b.Fatal(err)
		}
		src, err := rowfile.Open(nil, path)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("read/turns=%d", turns), func(b *testing.B) {
			b.SetBytes(int64(file.Len()))
			for b.Loop() {
				for _, err := range rowfile.Read(bytes.NewReader(file.Bytes()), (*rl.Rollout).Validate) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(fmt.Sprintf("export/turns=%d", turns), func(b *testing.B) {
			a := grpo(b)
			b.SetBytes(int64(file.Len()))
			for b.Loop() {
				if _, err := rowfile.ExportRows(b.Context(), io.Discard, src, a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
