package verifycmd

import (
	"context"
	"fmt"
	"time"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/verify/swe"
)

// bill is what the replies of a run have cost.
type bill struct {
	price cli.Price
	known bool
	// most is the cost at which the run is stopped; 0 means that nothing stops it.
	most  float64
	spent float64 // the progress's lock guards it
	stop  context.CancelCauseFunc
}

// charge adds the cost of tokens, and stops the run at its limit.
func (e *evaluation) charge(u agent.Usage) {
	b := &e.bill
	e.progress.Lock()
	defer e.progress.Unlock()
	if b.spent += b.price.Cost(u); b.most > 0 && b.spent >= b.most {
		b.stop(&cli.ExitError{Code: cli.ExitLimit, Err: fmt.Errorf(
			"the cost limit of %.2f is reached, %.2f by the configuration's prices; --max-cost allows more", b.most, b.spent)})
	}
}

// typical is what a rollout takes if it takes half of its steps and fills half of its context, evenly. The model
// itself writes a sixth of what fills the context.
func typical(steps, context int) agent.Usage {
	steps, context = max(steps/2, 1), context/2
	return agent.Usage{
		Prompt: steps * context / 2, Cached: max(steps*context/2-context, 0), Completion: context / 6,
	}
}

// estimate says what the rollouts that are left may take in tokens, time and money, if --recipe or --max-cost is
// given.
func (e *evaluation) estimate(ctx context.Context, plan []run.Job) {
	left, full := 0, e.swe.Runner.Attempt.Limits
	for _, j := range plan {
		if o, done := e.dir.Find(j); done {
			u := swe.DetailOf(o).Tokens
			e.charge(agent.Usage{Prompt: u.Prompt, Completion: u.Completion, Cached: u.Cached})
			continue
		}
		left++
	}
	if e.o.recipe == "" && e.o.maxCost == 0 || left == 0 || full.Context == 0 || e.model.IsRecorded() {
		return
	}
	u := typical(full.Steps, full.Context)
	scaled := func(tokens int) string { return cli.Count(int64(tokens) * int64(left)) }
	e.progress.note("estimate: %s that take half of their steps and context read %s tokens, %s of them from the server's "+
		"cache if it has one, and write %s", cli.Plural(left, "rollout"), scaled(u.Prompt), scaled(u.Cached),
		scaled(u.Completion))
	if rate := e.speed(ctx); rate > 0 {
		took := time.Duration(float64(left*u.Completion) / rate / float64(e.o.workers) * float64(time.Second))
		e.progress.note("estimate: to write them takes %s at %.0f tokens a second, as one request has now, and %d at once; "+
			"reading, commands and tests come on top", cli.Clock(took), rate, e.o.workers)
	}
	if e.bill.known {
		e.progress.note("estimate: they cost %.2f by the configuration's prices", e.bill.price.Cost(u)*float64(left))
	}
}

// speed measures how many tokens the endpoint writes in a second for one request; 0 if that cannot be measured.
func (e *evaluation) speed(ctx context.Context) float64 {
	const tokens, patience = 64, 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	reply, err := e.model.Complete(ctx, agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: "Count from 1 to 100."}}, MaxTokens: tokens,
	})
	if err != nil {
		return 0 // the first rollout will report it
	}
	e.charge(reply.Usage)
	return float64(reply.Usage.Completion) / time.Since(began).Seconds()
}
