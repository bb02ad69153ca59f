package testlog

import (
	"hash/maphash"
	"strings"
)

// A log can name hundreds of thousands of tests. The two types here keep that cheap: with a map of strings, which
// hashes every name again when it grows, BenchmarkPytest takes 1.4 to 6.5 times as long, and names that are copied one
// by one cost as much again.

// index finds entries by name. It is an open-addressed table of at most half its length; a slot holds the upper half of
// a name's hash and the entry's number plus one.
type index struct {
	slots []uint64
	seed  maphash.Seed
	used  int
}

// find returns the number of the entry of that name, or -1.
func (x *index) find(name string, entries []entry) int {
	if len(x.slots) == 0 {
		return -1
	}
	i, _ := x.probe(name, maphash.String(x.seed, name), entries)
	return i
}

// findOrAdd returns the number of the entry of that name; if there is none, it is len(entries), and the caller must
// append it.
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

// probe returns the entry's number or, with -1, the free slot where it belongs. The upper half of the hash chooses the
// slot too, so that growing needs no name.
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
	a.block.WriteString(s) // fits, so that the block stays where it is
	return a.block.String()[start:]
}
