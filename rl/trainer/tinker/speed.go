package tinker

import (
	"context"
	"fmt"
	"time"

	"deepswe/rl"
)

// speedRows is how many rows of a step are computed to measure it.
const speedRows = 8

// speed measures how long a step of rows of a length takes, by the passes over a few of them.
func (m *Model) speed(ctx context.Context, rows, length int) (string, error) {
	some := make([]rl.Row, min(rows, speedRows))
	shares := make([]share, len(some))
	slope := make([]float64, length)
	for i := range some {
		some[i] = speedRow(length)
		shares[i] = share{row: &some[i], slope: slope}
	}
	for t, mask := range some[0].Mask {
		slope[t] = -float64(mask)
	}
	var forward, backward, step time.Duration
	for range 2 { // a server compiles for the first
		begun := time.Now()
		logprobs, err := m.forward(ctx, some)
		if err != nil {
			return "", err
		}
		forward = time.Since(begun)
		for i := range shares {
			shares[i].logprobs = logprobs[i]
		}
		begun = time.Now()
		if _, err := m.pass(ctx, pathBackward, gradientOf(shares, Normalisation{}, 1), true); err != nil {
			return "", err
		}
		backward = time.Since(begun)
		begun = time.Now()
		if _, _, err := m.zero(ctx); err != nil {
			return "", err
		}
		step = time.Since(begun)
	}
	all := func(d time.Duration) time.Duration { return d * time.Duration(rows) / time.Duration(len(some)) }
	round := func(d time.Duration) time.Duration { return d.Round(max(d/100, time.Millisecond)) }
	return fmt.Sprintf("a step of %d rows of %d tokens takes about %s: %s forward, %s backward, and %s for the "+
		"optimizer, as measured with %d of them", rows, length, round(all(forward)+all(backward)+step),
		round(all(forward)), round(all(backward)), round(step), len(some)), nil
}

// speedRow returns a row of which the last third is trained.
func speedRow(length int) rl.Row {
	r := rl.Row{
		Task: "speed", IDs: make([]int32, length), Mask: make([]uint8, length), Logprobs: make([]float64, length),
	}
	for t := range length {
		r.IDs[t] = probeIDs[t%len(probeIDs)]
		if t >= length-length/3 {
			r.Mask[t] = 1
		}
	}
	return r
}
