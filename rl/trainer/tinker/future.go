package tinker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// accepted is the response to a request whose result is polled for.
type accepted struct {
	Request string `json:"request_id"`
	Model   string `json:"model_id"`
}

// promise is an operation that the server has accepted.
type promise struct {
	operation string
	request   string
	// training is set for operations that change the weights or gradients. If such a result is lost, their state is not
	// known.
	training bool
}

// waiting is a response without a result (status 200 or 408), or the failure of an operation as hosted servers report
// it.
type waiting struct {
	Type     string `json:"type"`
	Queue    string `json:"queue_state"`
	Reason   string `json:"queue_state_reason"`
	Error    string `json:"error"`
	Category string `json:"category"`
}

// repeatable posts a request that may be executed twice, and waits for its result.
func (c *Client) repeatable(ctx context.Context, operation string, in, out any) error {
	var reply accepted
	if err := c.call(ctx, operation, in, &reply, true); err != nil {
		return err
	}
	return c.wait(ctx, promise{operation: operation, request: reply.Request}, out)
}

// pollOf is the body of a poll for the result of a request.
func pollOf(request string) content {
	data, _ := json.Marshal(map[string]string{"request_id": request}) // a text can always be encoded
	return content{data: data}
}

// wait polls until the operation has ended, and decodes its result into out unless that is nil. Failed polls are
// repeated, because results can be read several times.
func (c *Client) wait(ctx context.Context, p promise, out any) error {
	body := pollOf(p.request)
	if _, ok := out.(protobufResult); ok {
		body.accept = kindProtobuf
	}
	c.fresh(p.request)
	ctx, cancel := context.WithTimeout(ctx, c.longest)
	defer cancel()
	t := c.newTries()
	begun, patient := time.Now(), firstWarning
	var paused time.Time
	for {
		if took := time.Since(begun); took > patient {
			c.log.Warn("the trainer's operation has not ended", "operation", p.operation, "after", took.Round(time.Second),
				"given up after", c.longest)
			patient *= 2
		}
		a, _, err := c.send(ctx, c.http, http.MethodPost, "retrieve_future", body, min(pollTimeout, c.patience))
		if ctx.Err() != nil {
			return p.lost(fmt.Errorf("%s: wait for the result: %w", p.operation, ctx.Err()))
		}
		outcome := read(a, err)
		if err == nil && c.denies(a) || err != nil && outcome == held && !c.alive(ctx) {
			outcome = failing
		}
		switch outcome {
		case ended:
			if a.status >= 300 {
				return p.refused(a)
			}
			err := p.decode(a, out)
			if !errors.Is(err, errServer) || !t.again(ctx, 0) { // another error is the operation's
				return err
			}
		case failing:
			if !t.again(ctx, a.after) {
				return p.lost(c.failure(p.operation, a, err))
			}
		case held:
			t.reset()
			c.queued(p, a)
		case queueing:
			c.queued(p, a)
			t.again(ctx, 0)
			t.reset()
		case accountPaused:
			if paused.IsZero() {
				paused = time.Now()
				c.log.Warn("the trainer's account is paused; waiting", "detail", detailOf(a.body))
			}
			if time.Since(paused) > maxPause {
				return p.refused(a)
			}
			t.again(ctx, pausedPoll)
			t.reset()
		}
	}
}

// alive reports whether the server answers anything: one that works on a long operation does, one that hangs does not.
func (c *Client) alive(ctx context.Context) bool {
	_, _, err := c.send(ctx, c.http, http.MethodGet, "healthz", content{}, min(healthTimeout, c.patience))
	return err == nil
}

// firstWarning is how long an operation takes before there is a warning; each further one comes after twice the time.
const firstWarning = 5 * time.Minute

// pausedPoll is the time between polls while the account is paused.
const pausedPoll = 5 * time.Second

// progress is the outcome of a poll.
type progress int

const (
	ended         progress = iota // there is a result, or an error instead
	failing                       // the poll failed
	held                          // the poll timed out
	queueing                      // the server asks for another poll
	accountPaused                 // the account is paused until it is paid for
)

// read returns the outcome of a poll.
func read(a answer, err error) progress {
	switch {
	case err != nil && errors.Is(err, context.DeadlineExceeded), err == nil && a.status == http.StatusRequestTimeout:
		return held
	case err != nil, a.status >= 500, a.status == http.StatusTooManyRequests, a.status == http.StatusTooEarly:
		return failing
	case a.status == http.StatusPaymentRequired:
		return accountPaused
	}
	if w := waitingOf(a); a.status < 300 && w.Type == "try_again" {
		return queueing
	}
	return ended
}

// waitingOf decodes a response that may have no result. Such responses are short, unlike results.
func waitingOf(a answer) waiting {
	var w waiting
	if len(a.body) < 1<<14 {
		_ = json.Unmarshal(a.body, &w) // other responses leave it empty
	}
	return w
}

// queued logs why an operation has not begun, if the server says so.
func (c *Client) queued(p promise, a answer) {
	if w := waitingOf(a); w.Queue != "" && w.Queue != "active" {
		c.log.Warn("the trainer's operation waits", "operation", p.operation, "state", w.Queue, "reason", w.Reason)
	}
}

// decode decodes a result, or a failure as hosted servers report it.
func (p promise) decode(a answer, out any) error {
	if w := waitingOf(a); w.Error != "" {
		return p.lost(&Error{Operation: p.operation, Kind: ErrOperation, Detail: w.Category + ": " + w.Error})
	}
	if out == nil {
		out = new(unread)
	}
	if err := decode(a, out); err != nil {
		return p.lost(&Error{Operation: p.operation, Status: a.status, Kind: errServer, Detail: err.Error()})
	}
	return nil
}

// refused returns the error for a response that says that there will be no result.
func (p promise) refused(a answer) error {
	detail := detailOf(a.body)
	err := &Error{Operation: p.operation, Status: a.status, Kind: kindOf(a.status), Detail: detail}
	if a.status == http.StatusBadRequest || a.status == http.StatusUnprocessableEntity { // the poll itself is valid
		err.Kind = ErrOperation
	}
	// A failed operation has not changed the weights. Without a result, it is not known whether they have changed.
	err.Lost = gone(detail) || p.training && err.Kind != ErrOperation
	return err
}

// lost marks the error of a training operation with an unknown outcome.
func (p promise) lost(err error) error {
	if !p.training {
		return err
	}
	if e := lost(err); e != err {
		return e
	}
	return &Error{Operation: p.operation, Kind: errUnavailable, Cause: err, Lost: true}
}
