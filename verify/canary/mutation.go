package canary

import (
	"cmp"
	"slices"
)

// mutation is a change that makes a test fail.
type mutation struct {
	kind Kind
	key  string
	// plain is set if the change gives itself away: it is not one that a person would make.
	plain bool
	// unplaced is set if it may be at a place where no fix is needed.
	unplaced bool
	// ways are the ways to make the change, which differ in the wrong value: for each, the edits of the file. They do not
	// overlap.
	ways [][]edit
	// withheld are the literals that are taken out.
	withheld map[int]Literal
}

// edit replaces the bytes from at to end by text.
type edit struct {
	at, end int
	text    string
}

// replacement is a mutation that replaces a part of the file by any of the texts.
func replacement(kind Kind, key string, from, to int, texts ...string) mutation {
	m := mutation{kind: kind, key: key, plain: kind == Outright}
	for _, text := range texts {
		m.ways = append(m.ways, []edit{{from, to, text}})
	}
	return m
}

// rank orders mutations: withheld literals, other values, opposites, forms that give themselves away, the same where no
// fix may be needed, constant failures. An opposite may contradict the rest of the test, which then fails whatever the
// code under test returns.
func rank(m mutation) int {
	switch {
	case m.kind == Outright:
		return 7
	case m.unplaced:
		m.unplaced = false
		return 3 + rank(m)
	case m.plain:
		return 3
	case m.kind == Expectation && len(m.ways) == 1:
		return 2
	case m.kind == Expectation:
		return 1
	}
	return 0
}

// mutationKey identifies a mutation across runs.
func mutationKey(file string, t test, key string) string { return file + ":" + t.name() + ":" + key }

// apply applies edits to data. Those at the same offset keep their order.
func apply(data []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Or(a.at-b.at, a.end-b.end) })
	var out []byte
	last := 0
	for _, e := range edits {
		out = append(out, data[last:e.at]...)
		out = append(out, e.text...)
		last = e.end
	}
	return append(out, data[last:]...)
}

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
