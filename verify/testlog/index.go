package testlog

import (
	"hash/maphash"
	"strings"
)

// A log can name hundreds of thousands of tests. A map of strings, which hashes every name again when it grows,
// makes BenchmarkPytest take 1.4 to 6.5 times as long; copying names one by one costs as much again. Hence these
// two types.

// index finds entries by name. It is an open-addressing hash table that is at most half full. A slot contains the
// upper half of a name's hash and the entry's number plus one.
type index struct {
	slots []uint64
	seed  maphash.Seed
	used  int
}

// find returns the number of the entry with that name, or -1.
func (x *index) find(name string, entries []entry) int {
	if len(x.slots) == 0 {
		return -1
	}
	i, _ := x.probe(name, maphash.String(x.seed, name), entries)
	return i
}

// findOrAdd returns the number of the entry with that name. If there is none, it returns len(entries), and the
// caller must append the entry.
func (x *index) findOrAdd(name string, entries []entry) int {
	if 2*x.used >= len(x.slots) {
		x.grow()
	}
	hash := maphash.String(x.seed, name)
	i, slot := x.probe(name, hash, entries)
	if i >= 0 {
		return i
	}
	x.used++
	x.slots[slot] = hash&^0xFFFFFFFF | uint64(len(entries)+1)
	return len(entries)
}

// probe returns the entry's number and its slot or, if there is none, -1 and the free slot for it. The slot is
// chosen by the upper half of the hash, so that growing the table does not need the names.
func (x *index) probe(name string, hash uint64, entries []entry) (i, slot int) {
	mask := len(x.slots) - 1
	for slot = int(hash>>32) & mask; x.slots[slot] != 0; slot = (slot + 1) & mask {
		if s := x.slots[slot]; s>>32 == hash>>32 {
			if i := int(uint32(s)) - 1; entries[i].name == name {
				return i, slot
			}
		}
	}
	return -1, slot
}

func (x *index) grow() {
	old := x.slots
	if old == nil {
		x.seed = maphash.MakeSeed()
	}
	x.slots = make([]uint64, max(64, 4*len(old)))
	mask := len(x.slots) - 1
	for _, s := range old {
		if s == 0 {
			continue
		}
		slot := int(s>>32) & mask
		for x.slots[slot] != 0 {
			slot = (slot + 1) & mask
		}
		x.slots[slot] = s
	}
}

// arena copies strings into large blocks.
type arena struct {
	block *strings.Builder
}

const arenaBlock = 32 << 10

func (a *arena) copy(s string) string {
	if a.block == nil || a.block.Cap()-a.block.Len() < len(s) {
		a.block = new(strings.Builder)
		a.block.Grow(max(len(s), min(arenaBlock, 16*len(s))))
	}
	start := a.block.Len()
	a.block.WriteString(s) // fits into the block, which therefore does not move
	return a.block.String()[start:]
}
