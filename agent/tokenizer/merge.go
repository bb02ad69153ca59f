package tokenizer

// mergeTable finds the merge of two tokens: a hash table with open addressing, several times smaller and faster than a
// map for a quarter of a million pairs.
type mergeTable struct {
	slots []mergeSlot
	shift uint
}

type mergeSlot struct {
	pair uint64 // pairOf; 0 is an empty slot
	rank int32
	id   int32
}

func newMergeTable(n int) mergeTable {
	t := mergeTable{shift: 64 - 4}
	for 1<<(64-t.shift) < 2*n {
		t.shift--
	}
	t.slots = make([]mergeSlot, 1<<(64-t.shift))
	return t
}

func pairOf(a, b int32) uint64 { return uint64(a)<<32 | uint64(uint32(b)) + 1 }

func (t *mergeTable) slot(pair uint64) *mergeSlot {
	mask := uint64(len(t.slots) - 1)
	for i := pair * 0x9E3779B97F4A7C15 >> t.shift; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.pair == pair || s.pair == 0 {
			return s
		}
	}
}

// put adds a merge. The last of equal merges counts, as in Hugging Face's table.
func (t *mergeTable) put(a, b, rank, id int32) {
	pair := pairOf(a, b)
	*t.slot(pair) = mergeSlot{pair: pair, rank: rank, id: id}
}

func (t *mergeTable) get(a, b int32) (rank, id int32, ok bool) {
	s := t.slot(pairOf(a, b))
	return s.rank, s.id, s.pair != 0
}

// merger applies merges to words. It keeps its memory from one word to the next.
type merger struct {
	parts []part
	queue []candidate
}

// part is a token of a word, with its neighbours.
type part struct {
	id         int32
	prev, next int32 // -1 at the ends
	gone       bool  // merged into the part before it
}

// candidate is a merge of the part at a place with the next one.
type candidate struct{ rank, at, id int32 }

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// word appends the ids of a word: the merge of the lowest rank is made first, of equal ones the leftmost, until there
// is none. Bytes without a token are left out.
func (m *merger) word(t *Tokenizer, w string, ids []int32) []int32 {
	m.parts, m.queue = m.parts[:0], m.queue[:0]
	for i := range len(w) {
		if id := t.single[w[i]]; id >= 0 {
			n := int32(len(m.parts))
			m.parts = append(m.parts, part{id: id, prev: n - 1, next: n + 1})
		}
	}
	if len(m.parts) == 0 {
		return ids
	}
	m.parts[len(m.parts)-1].next = -1
	for i := range m.parts {
		m.consider(t, int32(i))
	}
	for len(m.queue) > 0 {
		m.apply(t, m.pop())
	}
	for i := int32(0); i >= 0; i = m.parts[i].next {
		ids = append(ids, m.parts[i].id)
	}
	return ids
}

// consider queues the merge of a part with the next one, if there is one.
func (m *merger) consider(t *Tokenizer, at int32) {
	if at < 0 || m.parts[at].next < 0 {
		return
	}
	if rank, id, ok := t.merges.get(m.parts[at].id, m.parts[m.parts[at].next].id); ok {
		m.push(candidate{rank, at, id})
	}
}

// apply makes a merge, unless an earlier merge has changed one of its parts.
func (m *merger) apply(t *Tokenizer, c candidate) {
	p := &m.parts[c.at]
	if p.gone || p.next < 0 {
		return
	}
	next := &m.parts[p.next]
	if _, id, ok := t.merges.get(p.id, next.id); !ok || id != c.id {
		return
	}
	p.id, next.gone = c.id, true
	p.next = next.next
	if p.next >= 0 {
		m.parts[p.next].prev = c.at
	}
	m.consider(t, p.prev)
	m.consider(t, c.at)
}

// push and pop are a binary heap: container/heap would allocate for each candidate.
func (m *merger) push(c candidate) {
	q := append(m.queue, c)
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !q[i].before(q[up]) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
	m.queue = q
}

func (m *merger) pop() candidate {
	q := m.queue
	top := q[0]
	last := len(q) - 1
	q[0] = q[last]
	q = q[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && q[down+1].before(q[down]) {
			down++
		}
		if !q[down].before(q[i]) {
			break
		}
		q[i], q[down] = q[down], q[i]
		i = down
	}
	m.queue = q
	return top
}
