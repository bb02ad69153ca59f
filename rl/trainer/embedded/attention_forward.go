package embedded

import (
	"math"
	"slices"
)

// attentionDecoder computes a reply of the network with attention.
type attentionDecoder struct {
	*attention
	*passage
	w []float64
	// x has a vector for each word of the passage, base is the part of h that is the same for all tokens.
	x, base []float64
	// sizes has the root mean square by which rectify divided the vector of each word.
	sizes []float64

	said []int32
	// z is the place that the last token was copied from.
	z    []float64
	now  *attentionLayers
	kept []*attentionLayers
}

// attentionLayers are the values of the layers at one token. query is Ask h, point is Point k, and weights are the
// attention to each word.
type attentionLayers struct {
	z, h, weights, c, k, logprobs []float64
	query, point                  []float64
	// own and copies are the terms of P, divided by the largest one: of the tokens of the vocabulary, and of the places
	// that can be copied. all has the sum of a token's terms, and sum that of all tokens.
	own, copies, all []float64
	sum, entropy     float64
	// sizeH and sizeK are what rectify divided h and k by.
	sizeH, sizeK float64
}

func (s *attentionDecoder) newLayers() *attentionLayers {
	d, e, n := s.width, s.hidden, len(s.ids)
	v := make([]float64, 4*d+2*e+n+len(s.copied)+3*s.spoken)
	take := func(size int) []float64 {
		part := v[:size:size]
		v = v[size:]
		return part
	}
	return &attentionLayers{
		z: take(d), h: take(e), weights: take(n), c: take(d), k: take(e), logprobs: take(s.spoken), query: take(d),
		point: take(d), own: take(s.spoken), copies: take(len(s.copied)), all: take(s.spoken),
	}
}

// bags calls do for each word of the last message and of the issue, with its table, its id and its weight.
func (s *attentionDecoder) bags(do func(at, id int, share float64)) {
	for _, id := range s.last {
		do(s.at.last, int(id), share(len(s.last)))
	}
	for _, id := range s.issue {
		do(s.at.issue, int(id), share(len(s.issue)))
	}
}

// embed makes the vectors of the words.
func (s *attentionDecoder) embed() {
	d, w := s.width, s.w
	s.x, s.sizes = make([]float64, len(s.ids)*d), make([]float64, len(s.ids))
	sums := func(starts []int32, table int) []float64 {
		out := make([]float64, (len(starts)-1)*d)
		for i := range len(starts) - 1 {
			part := s.ids[starts[i]:starts[i+1]]
			for _, id := range part {
				addScaled(out[i*d:(i+1)*d], share(len(part)), row(w, table, int(id), d))
			}
		}
		return out
	}
	lines, blocks := sums(s.lines, s.at.line), sums(s.blocks, s.at.block)
	bias := row(w, s.at.biasX, 0, d)
	for j := range s.ids {
		x := s.x[j*d : (j+1)*d]
		copy(x, bias)
		add(x, row(lines, 0, int(s.line[j]), d))
		add(x, row(blocks, 0, int(s.block[j]), d))
		add(x, row(w, s.at.age, int(s.age[j]), d))
		s.near(j, func(at, id int) { add(x, row(w, at, id, d)) })
		s.sizes[j] = rectify(x)
	}
}

// near calls do for each word within reach of word j, itself included, with its table and its id.
func (s *attentionDecoder) near(j int, do func(at, id int)) {
	for o := -reach; o <= reach; o++ {
		if i := j + o; i >= 0 && i < len(s.ids) {
			do(s.at.near+(o+reach)*s.n*s.width, int(s.ids[i]))
		}
	}
}

// before calls do for each of the recent tokens before token t of the reply, with its table and its id.
func (s *attentionDecoder) before(said []int32, t int, do func(at, id int)) {
	for k := 1; k <= recent; k++ {
		id := s.tokens.assistant // before the first token
		if t-k >= 0 {
			id = said[t-k]
		}
		do(s.at.said+(k-1)*s.n*s.hidden, int(id))
	}
}

func (s *attentionDecoder) vector(j int) []float64 {
	return s.x[j*s.width : (j+1)*s.width : (j+1)*s.width]
}

// scale keeps the size of scores (Vaswani et al. 2017).
func (s *attentionDecoder) scale() float64 { return 1 / math.Sqrt(float64(s.width)) }

// times adds the product of a matrix and the vector in to out. The matrix begins at position at of w.
func times(w []float64, at int, in, out []float64) {
	for i := range out {
		out[i] += dot(row(w, at, i, len(in)), in)
	}
}

// rectify sets negative elements to 0, and divides the vector by its root mean square, which it returns.
func rectify(v []float64) (size float64) {
	const least = 1e-6
	for i, x := range v {
		v[i] = max(x, 0)
	}
	size = math.Sqrt(dot(v, v)/float64(len(v)) + least)
	for i := range v {
		v[i] /= size
	}
	return size
}

func (s *attentionDecoder) predict(keep bool) (logprobs []float64, entropy float64) {
	l := s.now
	if l == nil || keep {
		l = s.newLayers()
	}
	s.now = l
	if keep {
		s.kept = append(s.kept, l)
	}
	w, at, scale := s.w, s.at, s.scale()
	copy(l.z, s.z)
	copy(l.h, s.base)
	s.before(s.said, len(s.said), func(at, id int) { add(l.h, row(w, at, id, s.hidden)) })
	times(w, at.place, l.z, l.h)
	l.sizeH = rectify(l.h)

	s.attend(l)
	copy(l.k, row(w, at.biasK, 0, s.hidden))
	times(w, at.think, l.h, l.k)
	times(w, at.seen, l.c, l.k)
	l.sizeK = rectify(l.k)

	copy(l.own, row(w, at.biasV, 0, s.spoken))
	times(w, at.speak, l.k, l.own)
	clear(l.point)
	times(w, at.point, l.k, l.point)
	gate := w[at.biasGate] + dot(row(w, at.gate, 0, s.hidden), l.k)
	for i, j := range s.copied {
		l.copies[i] = gate + scale*dot(l.point, s.vector(int(j)))
	}
	s.normalise(l)
	return l.logprobs, l.entropy
}

// attend sets the weights of the words and their mean c.
func (s *attentionDecoder) attend(l *attentionLayers) {
	scale := s.scale()
	clear(l.query)
	times(s.w, s.at.ask, l.h, l.query)
	clear(l.c)
	if len(s.ids) > 0 {
		for j := range s.ids {
			l.weights[j] = scale * dot(l.query, s.vector(j))
		}
		logSoftmax(l.weights)
		for j, lw := range l.weights {
			l.weights[j] = math.Exp(lw)
			addScaled(l.c, l.weights[j], s.vector(j))
		}
	}
}

// normalise turns the scores in own and copies into probabilities.
func (s *attentionDecoder) normalise(l *attentionLayers) {
	top := slices.Max(l.own)
	if len(l.copies) > 0 {
		top = max(top, slices.Max(l.copies))
	}
	for v, score := range l.own {
		l.logprobs[v] = score - top // kept if the token's terms underflow to 0
		l.own[v] = math.Exp(score - top)
	}
	copy(l.all, l.own)
	for i, j := range s.copied {
		l.copies[i] = math.Exp(l.copies[i] - top)
		l.all[s.ids[j]] += l.copies[i]
	}
	l.sum, l.entropy = 0, 0
	for _, p := range l.all {
		l.sum += p
	}
	norm := math.Log(l.sum)
	for v, p := range l.all {
		if p > 0 {
			l.logprobs[v] = math.Log(p)
		}
		l.logprobs[v] -= norm
		l.entropy -= p / l.sum * l.logprobs[v]
	}
}

// shares returns the share of a token's probability that is generated, not copied, and calls do with that of each
// place.
func (s *attentionDecoder) shares(
	l *attentionLayers, token int32, do func(i int, j int32, share float64),
) (own float64) {
	total := l.all[token]
	if total == 0 {
		return 1
	}
	for i, j := range s.copied {
		if s.ids[j] == token {
			do(i, j, l.copies[i]/total)
		}
	}
	return l.own[token] / total
}

func (s *attentionDecoder) push(token int32) {
	next := make([]float64, s.width)
	own := s.shares(s.now, token, func(_ int, j int32, share float64) { addScaled(next, share, s.vector(int(j))) })
	addScaled(next, own, s.z)
	s.z = next
	s.said = append(s.said, token)
}
