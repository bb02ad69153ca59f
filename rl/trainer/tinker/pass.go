package tinker

import (
	"context"
	"errors"
	"fmt"

	"deepswe/rl"
)

// shortestRow is the length of the shortest row that can be trained: the first token is not predicted.
const shortestRow = 2

// limits are the limits of a server, which does not check them itself, or too late.
type limits struct {
	// vocabulary is the number of token ids, length the longest row in tokens; 0 is unknown.
	vocabulary, length int
}

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
		if id < 0 || l.vocabulary > 0 && int(id) >= l.vocabulary {
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

// trained returns the number of trained tokens in a row.
func trained(r *rl.Row) int {
	n := 0
	for _, m := range r.Mask {
		if m != 0 {
			n++
		}
	}
	return n
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

// maxChunk is the most sequences in a request that hosted servers take.
const maxChunk = 1024

// Bytes of a sequence on the wire, for each token: an id twice, and a number for each array.
const (
	bytesPerID    = 14
	bytesPerFloat = 12
)

// chunks splits a batch into requests, in order. sizes[i] is the length of sequence i, and arrays the number of its
// arrays.
func chunks(sizes []int, arrays, most int) [][2]int {
	var out [][2]int
	from, bytes := 0, 0
	for i, n := range sizes {
		size := n * (bytesPerID + arrays*bytesPerFloat)
		if i > from && (bytes+size > most || i-from == maxChunk) {
			out = append(out, [2]int{from, i})
			from, bytes = i, 0
		}
		bytes += size
	}
	if len(sizes) > from {
		out = append(out, [2]int{from, len(sizes)})
	}
	return out
}

// ahead is how many requests of a pass to post before waiting for the first result, so that the next is uploaded while
// the server computes one.
const ahead = 2

// pass posts a batch in chunks and returns the log-probabilities of every target, in the order of the data.
func (m *Model) pass(ctx context.Context, path string, in passInput, changes bool) ([]floats, error) {
	if len(in.Data) == 0 {
		return nil, invalidf(path, "an empty batch, on which servers hang")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if changes && m.doubles.on {
		m.doubles.add(in, m.dirty)
	}
	sizes := make([]int, len(in.Data))
	for i := range in.Data {
		sizes[i] = len(in.Data[i].Inputs.Targets.Data)
	}
	var out []floats
	type posted struct {
		promise
		from, to int
	}
	var waiting []posted
	var failed error
	collect := func(n int) {
		for len(waiting) > n {
			w := waiting[0]
			waiting = waiting[1:]
			logprobs, err := m.collect(ctx, w.promise, sizes[w.from:w.to])
			out = append(out, logprobs...)
			if failed == nil {
				failed = err
			}
		}
	}
	for _, c := range chunks(sizes, 3, m.options.ChunkBytes) {
		part := in
		part.Data = in.Data[c[0]:c[1]]
		p, err := m.operate(ctx, path, map[string]any{path + "_input": part, "type": path}, changes)
		if err != nil {
			failed = err
			break
		}
		m.dirty = m.dirty || changes
		waiting = append(waiting, posted{p, c[0], c[1]})
		if collect(ahead - 1); failed != nil {
			break
		}
	}
	collect(0) // also after an error, because the next operation must not be posted before the pass has ended
	if failed != nil && changes {
		failed = lost(failed) // a part of the gradient may be on the server
	}
	return out, failed
}

// collect waits for the result of one chunk.
func (m *Model) collect(ctx context.Context, p promise, sizes []int) ([]floats, error) {
	var out passOutput
	if err := m.finish(ctx, p, &out); err != nil {
		return nil, err
	}
	if len(out.Outputs) != len(sizes) {
		return nil, faultf(p.operation, "%d results for %d sequences", len(out.Outputs), len(sizes))
	}
	logprobs := make([]floats, len(sizes))
	for i, o := range out.Outputs {
		logprobs[i] = o.Logprobs.Data
		if len(logprobs[i]) != sizes[i] {
			return nil, faultf(p.operation, "%d logprobs for %d tokens", len(logprobs[i]), sizes[i])
		}
	}
	return logprobs, nil
}

// repeated makes a forward pass again if the server's result cannot be used, because it changes nothing.
func (m *Model) repeated(ctx context.Context, in passInput) ([]floats, error) {
	for t := m.client.newTries(); ; {
		out, err := m.pass(ctx, "forward", in, false)
		if !errors.Is(err, errServer) || ctx.Err() != nil || !t.again(ctx, 0) {
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
