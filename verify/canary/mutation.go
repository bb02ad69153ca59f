package canary

import (
	"cmp"
	"slices"
)

// mutation is a change that makes a canary of a test.
type mutation struct {
	kind Kind
	key  string
	// plain is set if the change gives itself away, because no person would have written the test like that.
	plain bool
	// unplaced is set if what it makes wrong may pass without a fix.
	unplaced bool
	// ways are alternatives, each with another wrong value. Each consists of edits of the file that do not overlap.
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

// rank orders mutations, the best lowest: withheld literals, other values, opposites, forms that give themselves
// away, then the last three again where no fix may be needed, and constant failures. An opposite may contradict the
// rest of the test, which then fails whatever the code under test returns.
func rank(m mutation) int {
	switch {
	case m.kind == Outright:
		return 7
	case m.unplaced:
		m.unplaced = false
		return givenAway + rank(m)
	case m.plain:
		return givenAway
	case m.kind == Expectation && len(m.ways) == 1:
		return 2
	case m.kind == Expectation:
		return 1
	}
	return 0
}

// givenAway is the rank of a form that gives itself away.
const givenAway = 3

// mutationKey identifies a mutation across runs.
func mutationKey(file string, t test, key string) string { return file + ":" + t.name() + ":" + key }

// apply applies edits that do not overlap to data, after sorting them in place. Those of the same range keep their
// order.
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
