package tinker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"deepswe/rl"
)

// Probe holds the properties of a server that can only be measured.
type Probe struct {
	Normalisation Normalisation `json:"normalisation"`
	// Dedups: a request that is sent twice under one sequence number is executed once, and answered both times.
	Dedups bool `json:"dedups"`
}

// errSilent reports a server that returns no gradient norms, so that nothing can be measured.
var errSilent = errors.New("the trainer's optim_step does not return the norm of the gradient, so whether it sums or " +
	"averages cannot be measured; to fix: set trainer.normalisation")

// probeIDs is the sequence to probe with. Every vocabulary has these ids.
var probeIDs = [...]int32{1, 2, 3, 4, 5, 6}

// probeRow is that sequence, of which the last tokens are trained.
func probeRow(trained int) rl.Row {
	n := len(probeIDs)
	row := rl.Row{Task: "probe", IDs: probeIDs[:], Mask: make([]uint8, n), Logprobs: make([]float64, n)}
	for t := n - trained; t < n; t++ {
		row.Mask[t] = 1
	}
	return row
}

// probeTimeout limits a probe. Its operations are tiny, but a server may have to compile for them first.
const probeTimeout = 20 * time.Minute

// Probe measures how the server behaves, with a model that it creates and unloads. It accumulates sequences of equal
// gradient once and twice, over one token and over several, and compares the norms of the steps. Each step has a
// learning rate of 0 and clears the gradient, so that the next model in the same slot is not affected. A probe that
// has lost the server is made again within the client's patience.
func (c *Client) Probe(ctx context.Context, o ModelOptions) (p Probe, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, fmt.Errorf("it has not ended after %s", probeTimeout))
	defer cancel()
	t := c.newTries()
	for {
		if p, err = c.probeOnce(ctx, o); err == nil {
			return p, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		if !errors.Is(err, rl.ErrTrainerLost) || ctx.Err() != nil || !t.again(ctx, 0) {
			return p, fmt.Errorf("probe the trainer: %w", err)
		}
		c.log.Warn("the trainer could not be probed; it is probed again", "error", err)
	}
}

func (c *Client) probeOnce(ctx context.Context, o ModelOptions) (Probe, error) {
	m, err := c.Create(ctx, o)
	if err != nil {
		return Probe{}, err
	}
	defer m.Close(modelTimeout)
	return m.probe(ctx)
}

func (m *Model) probe(ctx context.Context) (p Probe, err error) {
	// On SkyRL's JAX backend, a new model inherits the gradient that the previous model in its slot has left, such as a
	// killed client's.
	if _, _, err := m.zero(ctx); err != nil {
		return p, err
	}
	if p.Dedups, err = m.dedups(ctx); err != nil {
		return p, err
	}
	norm := func(sequences, weights int) (v float64) {
		if err == nil {
			v, err = m.norm(ctx, sequences, weights)
		}
		return v
	}
	one := norm(1, 1)
	if err == nil && one == 0 {
		err = errSilent
	}
	// One token with a gradient among others without one; then two sequences with a single trained token each.
	beside, twice := norm(1, len(probeIDs)-1), norm(2, 1)
	if err != nil {
		return p, err
	}
	if p.Normalisation.Tokens, err = shrinks("of a token", beside/one, 1/float64(len(probeIDs)-1), 1); err != nil {
		return p, err
	}
	p.Normalisation.Sequences, err = shrinks("of a sequence", twice/one, 1, 2)
	return p, err
}

// shrinks reports whether a ratio is near mean rather than sum. If it is near neither, it returns an error.
func shrinks(what string, got, mean, sum float64) (bool, error) {
	const near = 0.1
	switch {
	case math.Abs(got/mean-1) < near:
		return true, nil
	case math.Abs(got/sum-1) < near:
		return false, nil
	}
	return false, fmt.Errorf("the share %s in the gradient is %.3g: neither a sum (%.3g) nor a mean (%.3g); "+
		"to fix: set trainer.normalisation", what, got, sum, mean)
}

// norm returns the norm of the gradient of equal sequences, each with the given number of weighted tokens, of which
// the last has an advantage. The error is errSilent if the server does not return the norm.
func (m *Model) norm(ctx context.Context, sequences, weights int) (float64, error) {
	row := probeRow(weights)
	logprobs, err := m.forward(ctx, []rl.Row{row})
	if err != nil {
		return 0, err
	}
	slope := make([]float64, len(row.IDs))
	slope[len(slope)-1] = -1
	var shares []share
	for range sequences {
		shares = append(shares, share{row: &row, logprobs: logprobs[0], slope: slope})
	}
	in := gradientOf(shares, Normalisation{}, 1)
	if _, err := m.pass(ctx, pathBackward, in, true); err != nil {
		return 0, err
	}
	norm, known, err := m.zero(ctx)
	switch {
	case err != nil:
		return 0, err
	case !known:
		return 0, errSilent
	case math.IsNaN(norm):
		return 0, faultf("probe", "the gradient of a fresh model is not finite; to fix: restart the server, whose weights "+
			"are broken")
	}
	return norm, nil
}

// dedups reports whether a harmless request that is posted twice with one sequence number is executed once, and
// answered both times.
func (m *Model) dedups(ctx context.Context) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := probeRow(1)
	m.sequence++
	in := passRequest{model: m.id, sequence: m.sequence, forwardOnly: true,
		input: passInput{Data: []datum{datumOf(&row)}, Loss: "cross_entropy"}}
	var requests [2]string
	for i := range requests {
		reply, err := m.client.pass(ctx, in, m.encoding, true)
		if requests[i] = reply.Request; err == nil {
			err = m.client.wait(ctx, promise{operation: pathForward, request: reply.Request}, nil)
		}
		if i > 0 && errors.Is(err, ErrConflict) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return requests[0] == requests[1], nil
}
