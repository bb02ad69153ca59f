package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"deepswe/rl"
)

// shortestRow is the length of the shortest row that can be trained: the first token is not predicted.
const shortestRow = 2

// limits are the limits of a server, which does not check them itself, or too late.
type limits struct {
	// vocabulary is the number of token ids, length the longest row in tokens; 0 is unknown.
	vocabulary, length int
}

// lacks reports whether the server's model does not have an id.
func (l limits) lacks(id int32) bool { return id < 0 || l.vocabulary > 0 && int(id) >= l.vocabulary }

// check returns an error for a row that a server would misread, or that would break it.
func (l limits) check(r *rl.Row) error {
	n := len(r.IDs)
	at := nameOf(r)
	switch {
	case len(r.Mask) != n || len(r.Logprobs) != n:
		return invalidf(at, "%d ids, a mask of %d and %d logprobs: want the same number", n, len(r.Mask), len(r.Logprobs))
	case n < shortestRow:
		return invalidf(at, "%d ids: want at least %d", n, shortestRow)
	case r.Mask[0] != 0:
		return invalidf(at, "its first token is trained, and nothing comes before it")
	case l.length > 0 && n > l.length:
		detail := fmt.Sprintf("%d tokens, and the trainer takes %d", n, l.length)
		if r.Task != "" {
			detail += "; to fix: lower algorithm.max_length and the environment's context"
		}
		return &Error{Operation: at, Kind: errLong, Detail: detail}
	case r.Advantages != nil && len(r.Advantages) != n:
		return invalidf(at, "%d ids and %d advantages: want the same number", n, len(r.Advantages))
	}
	for t, id := range r.IDs {
		if l.lacks(id) {
			return invalidf(at, "token %d has the id %d, and the trainer's model has %d ids: it is from another model or "+
				"tokenizer", t, id, l.vocabulary)
		}
		if r.Mask[t] == 0 {
			continue
		}
		if lp := r.Logprobs[t]; infinite(lp) {
			return invalidf(at, "the logprob of token %d is %v", t, lp)
		}
		if a := r.AdvantageOf(t); infinite(a * r.Scale) {
			return invalidf(at, "advantage %v of token %d and scale %v: want finite numbers", a, t, r.Scale)
		}
	}
	return nil
}

// checkAll returns the error of the first row that has one.
func (l limits) checkAll(rows []rl.Row) error {
	for i := range rows {
		if err := l.check(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// nameOf names a row in errors. An example has no task.
func nameOf(r *rl.Row) string {
	if r.Task == "" {
		return "the example"
	}
	return fmt.Sprintf("row %d of attempt %d at task %s", r.Row, r.Attempt, r.Task)
}

// datumOf shifts a row: element j of an array is about token j+1. weights are the mask.
func datumOf(r *rl.Row) datum {
	n := len(r.IDs) - 1
	weights := make([]float64, n)
	for t, m := range r.Mask[1:] {
		weights[t] = float64(min(m, 1))
	}
	return datum{
		Input: inputOf(r.IDs[:n]),
		Inputs: lossInputs{
			Targets: &tensor[ints]{Data: r.IDs[1:], DType: "int64", Shape: [1]int{n}}, Weights: floatTensor(weights),
		},
	}
}

// The operations of passes.
const (
	pathForward  = "forward"
	pathBackward = "forward_backward"
)

// ahead is how many requests of a pass to post before waiting for the first result, so that the next is uploaded while
// the server computes one.
const ahead = 2

// pass posts a batch in as many requests as the server's limits call for, and returns the log-probabilities of every
// target, in the order of the data.
func (m *Model) pass(ctx context.Context, path string, in passInput, changes bool) ([]floats, error) {
	if len(in.Data) == 0 {
		return nil, invalidf(path, "an empty batch, on which servers hang")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if changes && m.doubles.on {
		m.doubles.add(in, m.dirty)
	}
	var out []floats
	type posted struct {
		promise
		data []datum
	}
	var waiting []posted
	var failed error
	collect := func(n int) {
		for len(waiting) > n {
			w := waiting[0]
			waiting = waiting[1:]
			logprobs, err := m.collect(ctx, w.promise, w.data)
			out = append(out, logprobs...)
			failed = cmp.Or(failed, err)
		}
	}
	for left := in.Data; len(left) > 0 && failed == nil; {
		part := in
		part.Data = left[:m.encoding.fit(left)]
		p, err := m.post(ctx, path, part, changes)
		if errors.Is(err, errLarge) && m.encoding.refit(part.Data) {
			continue
		}
		if err != nil {
			failed = err
			break
		}
		m.dirty = m.dirty || changes
		waiting = append(waiting, posted{p, part.Data})
		left = left[len(part.Data):]
		collect(ahead - 1)
	}
	collect(0) // also after an error, because the next operation must not be posted before the pass has ended
	if failed != nil && changes {
		failed = lost(failed) // a part of the gradient may be on the server
	}
	return out, failed
}

// post posts one request of a pass.
func (m *Model) post(ctx context.Context, path string, in passInput, changes bool) (promise, error) {
	return m.accept(path, changes, func(repeatable bool) (accepted, error) {
		r := passRequest{model: m.id, sequence: m.sequence, forwardOnly: path == pathForward, input: in}
		return m.client.pass(ctx, r, m.encoding, repeatable)
	})
}

// pass posts the request of a pass.
func (c *Client) pass(ctx context.Context, r passRequest, e encoding, repeatable bool) (reply accepted, err error) {
	path, body, err := r.encode(e)
	if err != nil {
		return reply, &Error{Operation: path, Kind: ErrInvalid, Detail: err.Error()}
	}
	return reply, c.request(ctx, http.MethodPost, path, body, &reply, repeatable)
}

// collect waits for the result of one request.
func (m *Model) collect(ctx context.Context, p promise, data []datum) ([]floats, error) {
	var out passOutput
	if err := m.finish(ctx, p, &out); err != nil {
		return nil, err
	}
	if len(out.Outputs) != len(data) {
		return nil, faultf(p.operation, "%d results for %d sequences", len(out.Outputs), len(data))
	}
	logprobs := make([]floats, len(data))
	for i, o := range out.Outputs {
		logprobs[i] = o.Logprobs.Data
		if n := len(data[i].Inputs.Targets.Data); len(logprobs[i]) != n {
			return nil, faultf(p.operation, "%d logprobs for %d tokens", len(logprobs[i]), n)
		}
	}
	return logprobs, nil
}

// repeated makes a forward pass, again if the server's result cannot be used: the pass changes nothing.
func (m *Model) repeated(ctx context.Context, in passInput) ([]floats, error) {
	for t := m.client.newTries(); ; {
		out, err := m.pass(ctx, pathForward, in, false)
		again := errors.Is(err, errServer) || errors.Is(err, ErrConflict) // its request may have arrived twice
		if !again || ctx.Err() != nil || !t.again(ctx, 0) {
			return out, err
		}
		m.client.log.Warn("the forward pass is made again", "error", err)
	}
}

// forward returns the log-probabilities of the rows' tokens, in the shape of their ids, with 0 for tokens that are not
// trained. It returns an error if one is not finite, because the server lacks an id or its weights are broken.
func (m *Model) forward(ctx context.Context, rows []rl.Row) ([][]float64, error) {
	data := make([]datum, len(rows))
	for i := range rows {
		data[i] = datumOf(&rows[i])
	}
	out, err := m.repeated(ctx, passInput{Data: data, Loss: "cross_entropy"})
	if err != nil {
		return nil, err
	}
	logprobs := make([][]float64, len(rows))
	for i := range rows {
		logprobs[i] = make([]float64, len(rows[i].IDs))
		for t, lp := range out[i] {
			if rows[i].Mask[t+1] == 0 {
				continue
			}
			if infinite(lp) {
				return nil, faultf("forward", "the logprob of token %d of %s is %v: the id %d is outside the server's vocabulary, "+
					"or its weights are not finite; to fix: check that sampler and trainer have the same model, and restart "+
					"the server", t+1, nameOf(&rows[i]), lp, rows[i].IDs[t+1])
			}
			logprobs[i][t+1] = lp
		}
	}
	return logprobs, nil
}
