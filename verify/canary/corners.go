package canary

import "slices"

// If each twin differed from the original in one place, the original would be the test that all others resemble most,
// and code under test that compares the sources could forge a result for that test only. So if two expectations of a
// test can be made wrong, there are twins for all three combinations, and nothing in the sources tells the original
// from them. For each of the two expectations, there is still a twin in which only that one is wrong: a result that is
// forged for one of them, such as an object that is equal to everything, passes it.

// choose selects the mutations for a test.
func (p *planter) choose(t test, file string) (chosen []mutation) {
	all := t.mutations(p.options.Rand)
	var places []mutation
	for _, wrong := range ofKind(all, Expectation) {
		if len(places) == 0 || len(places) == 1 && apart(places[0], wrong) {
			places = append(places, wrong)
		}
	}
	ways := slices.Clone(places)
	if len(places) == 2 {
		both := slices.Concat(places[0].edits, places[1].edits)
		ways = append(ways, mutation{Expectation, places[0].key + "+" + places[1].key, both})
	}
	if outright := ofKind(all, Outright); len(outright) > 0 {
		way := outright[0]
		for _, place := range places { // so that it does not tell the original either
			if p.options.Rand.IntN(2) == 0 && apart(way, place) {
				way.edits = slices.Concat(way.edits, place.edits)
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
	for _, e := range a.edits {
		for _, f := range b.edits {
			if e.at < f.end && f.at < e.end || e.at == f.at && e.end == f.end {
				return false
			}
		}
	}
	return true
}
