package embedded

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// shape is the size of a network that sees two windows: the turn's observation and the reply so far. Their one-hot
// tokens pass through two hidden layers and a softmax over the tokens that can be written:
//
//	h1 = relu(b1 + sum_s Observe[s][token_s] + sum_k Reply[k][token_k])
//	h2 = relu(b2 + Mix h1)
//	logits = b3 + Speak h2
//
// It is the neural language model of Bengio et al. 2003 with the embedding and the first layer merged: each token has
// a vector of its own at each place of the window.
type shape struct {
	vocabulary int // tokens that can be read
	spoken     int // tokens that can be sampled: the first ones of the vocabulary
	window     int // tokens of an observation
	reply      int // tokens of a reply
	hidden     int
	tokens     *tokenizer
}

// The parts of the parameter vector, in order: Observe, Reply, b1, Mix, b2, Speak, b3.
func (s shape) observed(slot int, token int32) int {
	return (slot*s.vocabulary + int(token)) * s.hidden
}
func (s shape) replied(slot int, token int32) int { return s.observed(s.window+slot, token) }
func (s shape) bias1() int                        { return (s.window + s.reply) * s.vocabulary * s.hidden }
func (s shape) mix() int                          { return s.bias1() + s.hidden }
func (s shape) bias2() int                        { return s.mix() + s.hidden*s.hidden }
func (s shape) speak() int                        { return s.bias2() + s.hidden }
func (s shape) bias3() int                        { return s.speak() + s.spoken*s.hidden }
func (s shape) parameters() int                   { return s.bias3() + s.spoken }

// initial weights are normal with variances that keep the size of the activations (He et al. 2015). The last layer is
// zero: a fresh policy is exactly uniform, so that what it does before training is known and not luck.
func (s shape) initial(seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, initStream))
	p := make([]float64, s.parameters())
	first := math.Sqrt(2 / float64(s.window+s.reply))
	for i := range s.bias1() {
		p[i] = first * r.NormFloat64()
	}
	second := math.Sqrt(2 / float64(s.hidden))
	for i := s.mix(); i < s.bias2(); i++ {
		p[i] = second * r.NormFloat64()
	}
	return p
}

// activations are the values of the layers at one token.
type activations struct {
	h1, h2   []float64
	logprobs []float64
	// entropy of the softmax, in nats.
	entropy float64
}

func (s shape) newActivations() *activations {
	v := make([]float64, 2*s.hidden+s.spoken)
	return &activations{h1: v[:s.hidden:s.hidden], h2: v[s.hidden : 2*s.hidden : 2*s.hidden], logprobs: v[2*s.hidden:]}
}

// read sums the first layer over an observation into sum, which has hidden entries.
func (s shape) read(p []float64, observation []int32, sum []float64) {
	copy(sum, row(p, s.bias1(), 0, s.hidden))
	for slot, token := range observation {
		add(sum, row(p, s.observed(slot, token), 0, s.hidden))
	}
}

// layers fills a from the first layer's sum.
func (s shape) layers(p, sum []float64, a *activations) {
	for i, v := range sum {
		a.h1[i] = max(v, 0)
	}
	copy(a.h2, p[s.bias2():s.speak()])
	times(p, s.mix(), a.h1, a.h2)
	for i, v := range a.h2 {
		a.h2[i] = max(v, 0)
	}
	copy(a.logprobs, p[s.bias3():])
	times(p, s.speak(), a.h2, a.logprobs)
	a.entropy = logSoftmax(a.logprobs)
}

// slopes adds to g the gradient of a loss whose derivative with respect to the spoken token's log-probability is
// dlogprob, and with respect to the entropy is dentropy. It returns the gradient at the first layer's sum, which the
// caller adds up over the tokens that share it. The result is a part of x, a scratch vector of 2 hidden + spoken
// numbers.
func (s shape) slopes(
	p []float64, a *activations, token int32, dlogprob, dentropy float64, g, x []float64,
) []float64 {
	clear(x)
	dh1, dh2, dlogits := x[:s.hidden], x[s.hidden:2*s.hidden], x[2*s.hidden:]
	for i, lp := range a.logprobs {
		q := math.Exp(lp)
		// d logprob[token] / d logit[i] is 1(i = token) - q; d entropy / d logit[i] is -q (log q + entropy).
		dlogits[i] = -dlogprob*q - dentropy*q*(lp+a.entropy)
	}
	dlogits[token] += dlogprob
	s.layerBack(p, s.speak(), s.bias3(), dlogits, a.h2, dh2, g)
	s.layerBack(p, s.mix(), s.bias2(), dh2, a.h1, dh1, g)
	return dh1
}

// layerBack propagates back through a layer. out is the gradient with respect to its output; that with respect to its
// rectified input, in, is added to din, those of matrix and bias to g.
func (s shape) layerBack(p []float64, matrix, bias int, out, in, din, g []float64) {
	add(g[bias:bias+len(out)], out)
	outer(g, matrix, out, in)
	back(p, matrix, out, din)
	for i, h := range in {
		if h <= 0 {
			din[i] = 0
		}
	}
}

// windowDecoder is a reply of the network with windows.
type windowDecoder struct {
	shape
	weights     []float64
	observation []int32
	sum         []float64
	slot        int
	// now are the activations of the last prediction, kept those of all predictions that are kept.
	now  *activations
	kept []*activations
}

// check refuses an observation that is longer than the window.
func (s shape) check(context []int32) error {
	if n := len(s.tokens.observation(context)); n > s.window {
		return fmt.Errorf("the last message has %d tokens and the window %d", n, s.window)
	}
	return nil
}

func (s shape) beginContext(w []float64, context []int32) decoder {
	d := &windowDecoder{
		shape: s, weights: w, observation: s.tokens.observation(context), sum: make([]float64, s.hidden),
	}
	s.read(w, d.observation, d.sum)
	return d
}

func (d *windowDecoder) predict(keep bool) (logprobs []float64, entropy float64) {
	if d.now == nil || keep {
		d.now = d.newActivations()
	}
	d.layers(d.weights, d.sum, d.now)
	if keep {
		d.kept = append(d.kept, d.now)
	}
	return d.now.logprobs, d.now.entropy
}

func (d *windowDecoder) push(token int32) {
	add(d.sum, row(d.weights, d.replied(d.slot, token), 0, d.hidden))
	d.slot++
}

// backward goes from the last token to the first. total is the gradient at the first layer's sum: a token of the
// reply is part of the sum for the tokens after it, the observation for all of them.
func (d *windowDecoder) backward(reply []int32, trains []bool, dlogprobs []float64, dentropy float64, g []float64) {
	total, x := make([]float64, d.hidden), make([]float64, 2*d.hidden+d.spoken)
	for slot := len(reply) - 1; slot >= 0; slot-- {
		if slot < len(reply)-1 {
			add(row(g, d.replied(slot, reply[slot]), 0, d.hidden), total)
		}
		if trains[slot] {
			add(total, d.slopes(d.weights, d.kept[slot], reply[slot], dlogprobs[slot], dentropy, g, x))
		}
	}
	add(row(g, d.bias1(), 0, d.hidden), total)
	for slot, token := range d.observation {
		add(row(g, d.observed(slot, token), 0, d.hidden), total)
	}
}
