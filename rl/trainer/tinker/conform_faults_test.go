package tinker_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"deepswe/rl"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/trainer/trainertest"
)

// faults takes one step again and again while requests fail. Each time, either the step has the gradient and the result
// of an undisturbed one, or the trainer says that it is lost: then a checkpoint is loaded and the step repeated.
func (c *conformance) faults(t *testing.T) {
	proxy := trainertest.NewProxy(t, c.URL)
	straight := c.URL
	c.URL = proxy.URL
	defer func() { c.URL = straight }()
	trainer := c.open(t, t.TempDir(), nil)
	defer trainer.Close()
	p, err := trainer.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows := c.rows(t, p)
	if err := trainer.Save(t.Context(), "base"); err != nil {
		t.Fatal(err)
	}
	norm, want := c.update(t, trainer, rows)
	const plain = "Internal Server Error"
	never := trainertest.ProxyFault{Status: http.StatusBadRequest, Text: `{"detail": "it cannot be computed"}`}
	late := trainertest.ProxyFault{Delay: 50 * time.Millisecond}
	type faults map[string][]trainertest.ProxyFault
	for _, tt := range []struct {
		name   string
		faults faults
		// unknown: the client cannot know whether the operation was executed. resolved: it can if the server recognises
		// a repeated request. doubled: it can as well if the server executes requests only in the order of their
		// numbers.
		unknown, resolved, doubled bool
	}{
		{name: "refusals and broken connections", faults: faults{
			"retrieve_future":  {{Status: 408}, {Drop: true}, {Status: 500, Text: plain}, {Status: 429}, late, {Twice: true}},
			"forward":          {{Drop: true}, {Status: 502, Text: plain}, {Twice: true}},
			"forward_backward": {{Status: 429}, late},
			"optim_step":       {{Status: 429}, late},
		}},
		{name: "the answer to a gradient is lost", faults: faults{"forward_backward": {{Drop: true}}},
			unknown: true, resolved: true},
		{name: "the answer to a step is lost", faults: faults{"optim_step": {{Drop: true}}}, unknown: true, resolved: true},
		{name: "a gradient fails", faults: faults{"forward_backward": {never}}, unknown: true},
		{name: "a gradient is delivered twice", faults: faults{"forward_backward": {{Twice: true}}}, unknown: true,
			resolved: true, doubled: true},
		{name: "a step is delivered twice", faults: faults{"optim_step": {{Twice: true}}}, unknown: true, resolved: true,
			doubled: true},
		{name: "an old answer to a step", faults: faults{"optim_step": {{Stale: true}}}, unknown: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := trainer.Load(t.Context(), "base"); err != nil {
				t.Fatal(err)
			}
			for path, list := range tt.faults {
				proxy.Inject(path, list...)
			}
			gotNorm, got, err := c.tryUpdate(t, trainer, rows)
			unknown := tt.unknown && (!tt.resolved || !c.known.Dedups) && (!tt.doubled || !c.Ordered)
			if unknown != errors.Is(err, rl.ErrTrainerLost) || !unknown && err != nil {
				t.Fatalf("the update ends with %v", err)
			}
			if left := proxy.Waiting(); len(left) > 0 {
				t.Fatalf("the requests to %v have not failed", left)
			}
			if unknown {
				if err := trainer.Load(t.Context(), "base"); err != nil {
					t.Fatal(err)
				}
				gotNorm, got = c.update(t, trainer, rows)
			}
			if d := far(want, got); d > trainertest.Tolerance || gotNorm != norm {
				t.Errorf("after the update logprobs differ by %.3g, and the norm of the gradient was %v instead of %v", d,
					gotNorm, norm)
			}
		})
	}
	c.skipped(t, trainer, proxy, rows)
}

// skipped checks that an old answer to a publication is noticed: the server may have lost its database.
func (c *conformance) skipped(t *testing.T, trainer *tinker.Trainer, proxy *trainertest.Proxy, rows []rl.Row) {
	if _, err := trainer.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.update(t, trainer, rows)
	proxy.Inject("save_weights_for_sampler", trainertest.ProxyFault{Stale: true})
	if _, err := trainer.Publish(t.Context()); !errors.Is(err, rl.ErrTrainerLost) {
		t.Errorf("a publication that was skipped ends with %v", err)
	}
}

// tryUpdate makes an update with all rows, and returns the norm of its gradient and the logprobs after it.
func (c *conformance) tryUpdate(t *testing.T, trainer *tinker.Trainer, rows []rl.Row) (float64, [][]float64, error) {
	t.Helper()
	if _, err := trainer.ForwardBackward(t.Context(), rows, rl.Objective{}); err != nil {
		return 0, nil, err
	}
	stats, err := trainer.Step(t.Context(), c.optimizer())
	if err != nil {
		return 0, nil, err
	}
	logprobs, err := trainer.Forward(t.Context(), rows)
	return stats.GradientNorm, logprobs, err
}

// update is tryUpdate for cases in which nothing fails.
func (c *conformance) update(t *testing.T, trainer *tinker.Trainer, rows []rl.Row) (float64, [][]float64) {
	t.Helper()
	norm, logprobs, err := c.tryUpdate(t, trainer, rows)
	if err != nil {
		t.Fatal(err)
	}
	return norm, logprobs
}
