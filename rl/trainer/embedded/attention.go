package embedded

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// attention is a network that reads a whole conversation, and writes tokens from its vocabulary or copies them from
// what it has read, as pointer networks and CopyNet do (Vinyals et al. 2015; Gu et al. 2016). For each word j before
// the reply, it makes a vector from the words around it, those of its line and those of its paragraph:
//
//	x_j = n(b + sum_o Near[o][token_j+o] + Line[its line] + Block[its paragraph] + Age[its message])
//
// where n(v) is relu(v) divided by its root mean square (RMSNorm without a gain: Zhang and Sennrich 2019).
//
// For token t of the reply, it attends to all of them, and knows the place z that the last token was copied from:
//
//	h   = n(b + sum_k Said[k][token_t-k] + Turn + Last[last message] + Issue[first message] + Place z)
//	c   = sum_j softmax_j(x_j . Ask h / sqrt(width)) x_j
//	k   = n(b + Think h + Seen c)
//	P(v) is proportional to exp(b_v + Speak_v . k) + sum over the places j of v of exp(s_j), where
//	s_j = x_j . Point k / sqrt(width) + Gate . k + b
//
// Lines, paragraphs and messages are sums over their words, divided by the root of their number. The place after
// token v is the mean of x_j over the places j of v and of z, weighted with their parts of P(v), which are exp(s_j)
// and exp(b_v + Speak_v . k).
type attention struct {
	tokens *tokenizer
	n      int // tokens that can be read
	spoken int // tokens that can be written: the first ones
	width  int // of x, c and z
	hidden int // of h and k
	window int
	// blind hides from the policy what tools have answered.
	blind bool
	// space marks the tokens of white space and the end token, breaks those with a line break.
	space, breaks []bool

	at attentionLayout
}

const (
	// reach is how many words on either side of a word have weights that depend on their distance.
	reach = 3
	// recent is how many of the last tokens of the reply have weights that depend on their distance.
	recent = 6
	// mostAge is the largest number of later messages that is distinguished, mostTurns that of earlier replies.
	mostAge   = 5
	mostTurns = 7
	// copyBias makes a fresh policy copy rarely.
	copyBias = -6
)

// attentionLayout holds the positions of the parts in the parameter vector.
type attentionLayout struct {
	near, line, block, age, biasX                   int
	said, turn, last, issue, place, biasH           int
	ask, think, seen, biasK                         int
	speak, biasV, point, gate, biasGate, parameters int
}

func newAttention(t *tokenizer, o Options) *attention {
	a := &attention{
		tokens: t, n: t.read(), spoken: t.spoken(), width: o.Hidden, hidden: o.Hidden, window: o.Window, blind: o.Blind,
		space: make([]bool, t.read()), breaks: make([]bool, t.read()),
	}
	for id := range a.space {
		text := t.text(int32(id))
		a.space[id] = int32(id) == t.end || text != "" && strings.TrimSpace(text) == ""
		a.breaks[id] = strings.Contains(text, "\n")
	}
	next := 0
	part := func(size int) int {
		at := next
		next += size
		return at
	}
	d, e := a.width, a.hidden
	a.at = attentionLayout{
		near: part((2*reach + 1) * a.n * d), line: part(a.n * d), block: part(a.n * d), age: part((mostAge + 1) * d),
		biasX: part(d),
		said:  part(recent * a.n * e), turn: part((mostTurns + 1) * e), last: part(a.n * e), issue: part(a.n * e),
		place: part(e * d), biasH: part(e),
		ask: part(d * e), think: part(e * e), seen: part(e * d), biasK: part(e),
		speak: part(a.spoken * e), biasV: part(a.spoken), point: part(d * e), gate: part(e), biasGate: part(1),
	}
	a.at.parameters = next
	return a
}

func (a *attention) parameters() int { return a.at.parameters }

// initial weights are normal with variances that keep the size of the activations. Those of the output layers are
// zero.
func (a *attention) initial(seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, initStream))
	p := make([]float64, a.at.parameters)
	fill := func(from, to int, terms float64) {
		size := 1 / math.Sqrt(terms)
		for i := from; i < to; i++ {
			p[i] = size * r.NormFloat64()
		}
	}
	fill(a.at.near, a.at.biasX, 2*reach+4)
	fill(a.at.said, a.at.place, recent+3)
	fill(a.at.place, a.at.biasH, float64(a.width))
	fill(a.at.ask, a.at.think, float64(a.hidden))
	fill(a.at.think, a.at.biasK, float64(a.hidden+a.width))
	p[a.at.biasGate] = copyBias
	return p
}

// row returns vector i of a table that begins at the given position.
func row(p []float64, at, i, size int) []float64 { return p[at+i*size : at+(i+1)*size : at+(i+1)*size] }

// check accepts every context: the network reads the end of a long one.
func (a *attention) check([]int32) error { return nil }

func (a *attention) beginContext(w []float64, context []int32) decoder {
	s := &attentionDecoder{attention: a, w: w, passage: a.read(context), z: make([]float64, a.width)}
	s.embed()
	s.base = slices.Clone(row(w, a.at.biasH, 0, a.hidden))
	add(s.base, row(w, a.at.turn, s.turn, a.hidden))
	s.bags(func(at, id int, share float64) { addScaled(s.base, share, row(w, at, id, a.hidden)) })
	return s
}
