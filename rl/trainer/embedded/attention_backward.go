package embedded

import "math"

// outer adds the product of a column and a row to the matrix that begins at the given position.
func outer(g []float64, at int, column, in []float64) {
	for i, c := range column {
		if c != 0 {
			addScaled(row(g, at, i, len(in)), c, in)
		}
	}
}

// back adds the transpose of the matrix that begins at the given position, times column, to out.
func back(w []float64, at int, column, out []float64) {
	for i, c := range column {
		if c != 0 {
			addScaled(out, c, row(w, at, i, len(out)))
		}
	}
}

// backRectify propagates back through rectify, which gave v and size: d holds the gradient with respect to v on
// entry, and with respect to rectify's input on return.
func backRectify(d, v []float64, size float64) {
	mean := dot(d, v) / float64(len(v))
	for i, x := range v {
		if x <= 0 {
			d[i] = 0
		} else {
			d[i] = (d[i] - mean*x) / size
		}
	}
}

// attentionSlopes are the gradients with respect to the layers at one token; own and copies are those of the scores.
type attentionSlopes struct {
	own, copies, h, k, c, query, point, weights []float64
}

func (s *attentionDecoder) backward(reply []int32, trains []bool, dlogprobs []float64, dentropy float64, g []float64) {
	d, e := s.width, s.hidden
	x := &attentionSlopes{
		own: make([]float64, s.spoken), copies: make([]float64, len(s.copied)), h: make([]float64, e),
		k: make([]float64, e), c: make([]float64, d), query: make([]float64, d), point: make([]float64, d),
		weights: make([]float64, len(s.ids)),
	}
	dx := make([]float64, len(s.x))
	dbase, dz, dzBefore := make([]float64, e), make([]float64, d), make([]float64, d)
	// dz is the gradient with respect to the place that a token passes on to the next one.
	for t := len(reply) - 1; t >= 0; t-- {
		l := s.kept[t]
		dlogprob, slope := 0.0, 0.0
		if trains[t] {
			dlogprob, slope = dlogprobs[t], dentropy
		}
		s.backLoss(l, reply[t], dlogprob, slope, x)
		clear(dzBefore)
		if t < len(reply)-1 {
			s.backPlace(l, reply[t], dz, dzBefore, dx, x)
		}
		s.backScores(l, dx, g, x)
		s.backAttend(l, dx, g, x)
		add(dbase, x.h)
		s.before(reply, t, func(at, id int) { add(row(g, at, id, e), x.h) })
		outer(g, s.at.place, x.h, l.z)
		back(s.w, s.at.place, x.h, dzBefore)
		dz, dzBefore = dzBefore, dz
	}
	add(row(g, s.at.biasH, 0, e), dbase)
	add(row(g, s.at.turn, s.turn, e), dbase)
	s.bags(func(at, id int, share float64) { addScaled(row(g, at, id, e), share, dbase) })
	s.backEmbed(dx, g)
}

// backLoss sets the gradients at the scores, from those of the token's log-probability and of the entropy.
func (s *attentionDecoder) backLoss(l *attentionLayers, token int32, dlogprob, dentropy float64, x *attentionSlopes) {
	slope := func(p float64, v int32) float64 {
		p /= l.sum
		return -p * (dlogprob + dentropy*(l.logprobs[v]+l.entropy))
	}
	for v, p := range l.own {
		x.own[v] = slope(p, int32(v))
	}
	for i, j := range s.copied {
		x.copies[i] = slope(l.copies[i], s.ids[j])
	}
	x.own[token] += dlogprob * s.shares(l, token, func(i int, _ int32, share float64) { x.copies[i] += dlogprob * share })
}

// backPlace propagates dz, the gradient with respect to the place after a token, back to the scores, the words and
// the place before the token.
func (s *attentionDecoder) backPlace(l *attentionLayers, token int32, dz, dzBefore, dx []float64, x *attentionSlopes) {
	// after is the product of dz and the place after the token. It is subtracted because shares sum to 1: where one
	// grows, the others shrink.
	after := 0.0
	own := s.shares(l, token, func(_ int, j int32, share float64) { after += share * dot(dz, s.vector(int(j))) })
	after += own * dot(dz, l.z)
	s.shares(l, token, func(i int, j int32, share float64) {
		x.copies[i] += share * (dot(dz, s.vector(int(j))) - after)
		addScaled(dx[int(j)*s.width:(int(j)+1)*s.width], share, dz)
	})
	x.own[token] += own * (dot(dz, l.z) - after)
	addScaled(dzBefore, own, dz)
}

func (s *attentionDecoder) backScores(l *attentionLayers, dx, g []float64, x *attentionSlopes) {
	w, at, scale, d := s.w, s.at, s.scale(), s.width
	clear(x.k)
	add(row(g, at.biasV, 0, s.spoken), x.own)
	outer(g, at.speak, x.own, l.k)
	back(w, at.speak, x.own, x.k)
	clear(x.point)
	gate := 0.0
	for i, j := range s.copied {
		slope := x.copies[i]
		if math.Abs(slope) < 1e-300 {
			continue
		}
		gate += slope
		addScaled(x.point, scale*slope, s.vector(int(j)))
		addScaled(dx[int(j)*d:(int(j)+1)*d], scale*slope, l.point)
	}
	outer(g, at.point, x.point, l.k)
	back(w, at.point, x.point, x.k)
	g[at.biasGate] += gate
	addScaled(row(g, at.gate, 0, s.hidden), gate, l.k)
	addScaled(x.k, gate, row(w, at.gate, 0, s.hidden))
	backRectify(x.k, l.k, l.sizeK)
}

// backAttend goes back from k through the attention to h.
func (s *attentionDecoder) backAttend(l *attentionLayers, dx, g []float64, x *attentionSlopes) {
	w, at, scale, d := s.w, s.at, s.scale(), s.width
	add(row(g, at.biasK, 0, s.hidden), x.k)
	outer(g, at.think, x.k, l.h)
	outer(g, at.seen, x.k, l.c)
	clear(x.h)
	back(w, at.think, x.k, x.h)
	clear(x.c)
	back(w, at.seen, x.k, x.c)
	clear(x.query)
	mean := 0.0
	for j, weight := range l.weights {
		x.weights[j] = dot(x.c, s.vector(j))
		mean += weight * x.weights[j]
	}
	for j, weight := range l.weights {
		slope := scale * weight * (x.weights[j] - mean)
		to := dx[j*d : (j+1)*d]
		addScaled(x.query, slope, s.vector(j))
		addScaled(to, slope, l.query)
		addScaled(to, weight, x.c)
	}
	outer(g, at.ask, x.query, l.h)
	back(w, at.ask, x.query, x.h)
	backRectify(x.h, l.h, l.sizeH)
}

// backEmbed goes back through the vectors of the words.
func (s *attentionDecoder) backEmbed(dx, g []float64) {
	d := s.width
	lines, blocks := make([]float64, (len(s.lines)-1)*d), make([]float64, (len(s.blocks)-1)*d)
	bias := row(g, s.at.biasX, 0, d)
	for j := range s.ids {
		slope := dx[j*d : (j+1)*d]
		backRectify(slope, s.vector(j), s.sizes[j])
		add(bias, slope)
		add(row(lines, 0, int(s.line[j]), d), slope)
		add(row(blocks, 0, int(s.block[j]), d), slope)
		add(row(g, s.at.age, int(s.age[j]), d), slope)
		s.near(j, func(at, id int) { add(row(g, at, id, d), slope) })
	}
	spread := func(starts []int32, table int, sums []float64) {
		for i := range len(starts) - 1 {
			part := s.ids[starts[i]:starts[i+1]]
			for _, id := range part {
				addScaled(row(g, table, int(id), d), share(len(part)), row(sums, 0, i, d))
			}
		}
	}
	spread(s.lines, s.at.line, lines)
	spread(s.blocks, s.at.block, blocks)
}
