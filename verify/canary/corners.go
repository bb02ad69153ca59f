package canary

import "slices"

// If each twin differed from the original in one place, the original would be the test that all others resemble most,
// and code under test that compares the sources could forge a result for that test only. So there are twins for all
// combinations of what two expectations of a test may be, and nothing in the sources tells the original from them. For
// each of the two expectations, there is still a twin in which only that one is wrong: a result that is forged for one
// of them, such as an object that is equal to everything, passes it.

// guesses is the least number of tests and twins, over all tests that must fail, among which the originals have to be
// guessed. Where expectations have too few forms, such as true and false, there are fewer.
const guesses = 8

// width returns how many tests and twins there must be for each of n tests.
func width(n int) int {
	for w := 2; ; w++ {
		combinations := 1
		for range n {
			combinations = min(combinations*w, guesses)
		}
		if combinations == guesses {
			return w
		}
	}
}

// choose returns the mutations for a test, each with a single way to make it.
func (p *planter) choose(t test, file string) (chosen []mutation) {
	all := t.mutations(p.options.Rand)
	var places []mutation
	for _, wrong := range ofKind(all, Expectation) {
		if len(places) == 0 || len(places) == 1 && apart(places[0], wrong) {
			places = append(places, wrong)
		}
	}
	places = narrowed(places, p.width)
	ways := combinations(places)
	if outright := ofKind(all, Outright); len(outright) > 0 {
		way := outright[0]
		for _, place := range places { // so that it does not tell the original either
			if n := p.options.Rand.IntN(len(place.edits) + 1); n > 0 && apart(way, place) {
				way = both(way, place, place.edits[n-1])
				way.key = outright[0].key
			}
		}
		ways = append(ways, way)
	}
	for _, way := range ways {
		if !p.options.Excluded[mutationKey(file, t, way.key)] {
			chosen = append(chosen, way)
		}
	}
	if len(chosen) == 1 {
		chosen = append(chosen, chosen[0]) // see exchange
	}
	return chosen
}

// narrowed returns the mutations with only as many ways to make them as it takes for width tests and twins.
func narrowed(places []mutation, width int) []mutation {
	used, total := make([]int, len(places)), 1
	for grown := true; grown; {
		grown = false
		for i, place := range places {
			if (used[i] == 0 || total < width) && used[i] < len(place.edits) {
				total = total / (used[i] + 1) * (used[i] + 2)
				used[i]++
				grown = true
			}
		}
	}
	out := slices.Clone(places)
	for i := range out {
		out[i].edits = out[i].edits[:used[i]]
	}
	return out
}

// combinations returns every way to make one of the mutations, or two of them together.
func combinations(places []mutation) (ways []mutation) {
	for i, place := range places {
		for _, edits := range place.edits {
			single := mutation{Expectation, place.key, [][]insertion{edits}}
			ways = append(ways, single)
			for _, second := range places[i+1:] {
				for _, further := range second.edits {
					ways = append(ways, both(single, second, further))
				}
			}
		}
	}
	return ways
}

// both returns a mutation with a way to make another one in addition.
func both(m, other mutation, edits []insertion) mutation {
	return mutation{m.kind, m.key + "+" + other.key, [][]insertion{slices.Concat(m.edits[0], edits)}}
}

func ofKind(all []mutation, k Kind) (found []mutation) {
	for _, s := range all {
		if s.kind == k {
			found = append(found, s)
		}
	}
	return found
}

// apart reports whether two mutations change different parts of a test.
func apart(a, b mutation) bool {
	for _, e := range a.edits[0] {
		for _, f := range b.edits[0] {
			if e.at < f.end && f.at < e.end || e.at == f.at && e.end == f.end {
				return false
			}
		}
	}
	return true
}
