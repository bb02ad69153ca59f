package tinker

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"deepswe/rl"
)

// A proxy may deliver one request twice. A server that recognises repeated requests executes it once. Another one
// executes it twice and gives the second execution a result that nobody asks for. Where the server numbers all requests
// in a row, as SkyRL does, such a result can be found, because its number lies between those of this client.

// doubles looks for operations of a model that the server has executed twice.
type doubles struct {
	on bool
	// from is the number of the newest operation of the model that was checked.
	from int64
	// rate is the learning rate of the last step, and sent the gradient of the next one, or of the last one if nothing
	// was sent since.
	rate float64
	sent passInput
}

// add adds a pass. more says that it is not the first since a step.
func (d *doubles) add(in passInput, more bool) {
	if more {
		in.Data = slices.Concat(d.sent.Data, in.Data)
	}
	d.sent = in
}

// Limits of a look. Other clients of the server have results there as well.
const (
	mostForeign    = 64
	foreignTimeout = 3 * time.Second
	lookTimeout    = 20 * time.Second
)

// foreignResult is the result of an operation that this client did not ask for.
type foreignResult struct {
	Metrics map[string]*float64 `json:"metrics"`
	Outputs []struct {
		Losses struct {
			Data floats `json:"data"`
		} `json:"elementwise_loss"`
		Logprobs struct {
			Data floats `json:"data"`
		} `json:"logprobs"`
	} `json:"loss_fn_outputs"`
}

// single returns an error if a step or a gradient of the model was executed a second time before the operation with
// the given request ID.
func (m *Model) single(ctx context.Context, request string) error {
	to, err := strconv.ParseInt(request, 10, 64)
	if !m.doubles.on || err != nil {
		return nil
	}
	from := m.doubles.from
	m.doubles.from = to
	if from == 0 {
		return nil // nothing was trained before the first operation
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	for n, looked := from+1, 0; n < to && looked < mostForeign && ctx.Err() == nil; n++ {
		id := strconv.FormatInt(n, 10)
		if m.client.issued(id) {
			continue
		}
		looked++
		s, ok := m.client.foreignResult(ctx, id)
		if !ok {
			continue
		}
		if what := m.doubles.match(&s); what != "" {
			return &Error{Operation: what, Kind: errDoubled, Lost: true, Detail: fmt.Sprintf("request %s is another execution; "+
				"to fix: look for a proxy that repeats POST requests", id)}
		}
	}
	return nil
}

// match returns the name of the model's operation that a result belongs to, or "" if it is of none.
func (d *doubles) match(s *foreignResult) string {
	rate, hasRate := valueOf(s.Metrics, "learning_rate")
	norm, hasNorm := valueOf(s.Metrics, "grad_norm")
	// A repeated step has no gradient, because the first execution has used it up. A step of another client's model has
	// one.
	if hasRate && hasNorm && norm == 0 && rate > 0 && math.Abs(rate-d.rate) <= alike*rate {
		return "optim_step"
	}
	if len(s.Outputs) == 0 || len(s.Outputs) > len(d.sent.Data) {
		return ""
	}
	for i := range s.Outputs {
		o := &s.Outputs[i]
		if !slices.ContainsFunc(d.sent.Data, func(sent datum) bool {
			return d.sent.gives(&sent.Inputs, o.Losses.Data, o.Logprobs.Data)
		}) {
			return ""
		}
	}
	return "forward_backward"
}

// alike is the largest relative difference of numbers that count as equal: servers compute in single precision.
const alike = 1e-3

// gives reports whether the losses are those of the sent sequence for these log-probabilities of its tokens, whatever
// the weights were at that time. A forward pass has others.
func (in *passInput) gives(sent *lossInputs, losses, logprobs floats) bool {
	if len(losses) != len(sent.Targets.Data) || len(logprobs) != len(losses) || sent.Weights == nil {
		return false
	}
	for t, got := range losses {
		if sent.Weights.Data[t] == 0 {
			continue
		}
		want := -logprobs[t]
		if in.Loss != string(rl.CrossEntropy) {
			if sent.Logprobs == nil || sent.Advantages == nil {
				return false
			}
			want = -math.Exp(logprobs[t]-sent.Logprobs.Data[t]) * sent.Advantages.Data[t]
		}
		want *= sent.Weights.Data[t]
		if !(math.Abs(got-want) <= alike*max(1e-3, math.Abs(want))) {
			return false
		}
	}
	return true
}

// foreignResult reads a result that this client did not ask for. ok is false if there is none.
func (c *Client) foreignResult(ctx context.Context, request string) (s foreignResult, ok bool) {
	a, _, err := c.send(ctx, c.http, http.MethodPost, "retrieve_future", pollOf(request), foreignTimeout)
	if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &s) != nil {
		c.log.Debug("trainer: another client's result is not known", "request", request, "status", a.status, "error", err)
		return s, false
	}
	return s, true
}
