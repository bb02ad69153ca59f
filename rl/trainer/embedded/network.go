package embedded

import (
	"math"
	"slices"
)

// network computes the probabilities of the next token from a conversation up to a reply and the reply so far. Its
// parameters are one vector.
type network interface {
	// parameters is the length of the vector, and initial returns fresh ones.
	parameters() int
	initial(seed uint64) []float64
	// check returns an error for a context that the network cannot read: the ids of a conversation up to the assistant's
	// mark before a reply, that mark included. A context without any ids is for a token that is not part of a reply.
	check(context []int32) error
	// beginContext reads a context that check has accepted.
	beginContext(weights []float64, context []int32) decoder
}

// decoder computes a reply, token by token.
type decoder interface {
	// predict returns the log-probabilities of the tokens that can come next, and their entropy in nats. The slice is
	// valid until the next call, and may be overwritten. With keep, the activations are kept for backward.
	predict(keep bool) (logprobs []float64, entropy float64)
	// push appends a token to the reply. It follows a call of predict.
	push(token int32)
	// backward adds to g the gradient of a loss with the given derivatives: with respect to the log-probabilities of the
	// trained tokens of a reply, and with respect to the entropy at each of them. The reply is what was pushed, at least
	// up to its last trained token, and every prediction was kept.
	backward(reply []int32, trains []bool, dlogprobs []float64, dentropy float64, g []float64)
}

// logSoftmax turns logits into log-probabilities in place and returns the entropy.
func logSoftmax(v []float64) (entropy float64) {
	top, sum := slices.Max(v), 0.0
	for _, x := range v {
		sum += math.Exp(x - top)
	}
	norm := top + math.Log(sum)
	for i := range v {
		v[i] -= norm
		entropy -= v[i] * math.Exp(v[i])
	}
	return entropy
}

func add(dst, src []float64) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] += src[i]
	}
}

func addScaled(dst []float64, f float64, src []float64) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] += f * src[i]
	}
}

// dot returns the inner product. It keeps four sums, because additions to a single one would wait for each other.
// Their order is fixed, so the result is reproducible.
func dot(a, b []float64) float64 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(a); i += 4 {
		x, y := a[i:i+4:i+4], b[i:i+4:i+4]
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + (s2 + s3)
}
