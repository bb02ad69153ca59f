package rank

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// candidate returns a candidate. A negative score means none. tests are regression and reproduction: without them it
// was not tested, and a negative regression means rejected.
func candidate(id int, patch string, score float64, tests ...int) Candidate {
	c := Candidate{ID: id, Patch: patch}
	if score >= 0 {
		c.Score = &score
	}
	if len(tests) > 0 {
		c.Tests = &Tests{Regression: max(0, tests[0]), Reproduction: max(0, tests[1]), Rejected: tests[0] < 0}
	}
	return c
}

// breaking returns the candidate with one broken test.
func breaking(c Candidate) Candidate {
	c.Tests.Broken = 1
	return c
}

func TestChoose(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rule   Rule
		cs     []Candidate
		winner int // ID
		by     Stage
	}{
		"nobody":                {rule: Rule{Verifier: Hybrid}, winner: -1, by: StageChosen},
		"one":                   {Rule{Verifier: Hybrid}, []Candidate{candidate(3, "a", .1, 0, 0)}, 3, StageChosen},
		"one without anything":  {Rule{Verifier: Hybrid}, []Candidate{candidate(3, "", -1)}, 3, StageChosen},
		"the score":             {Rule{Verifier: Free}, []Candidate{candidate(0, "a", .1), candidate(1, "b", .2)}, 1, StageScore},
		"a missing score":       {Rule{Verifier: Free}, []Candidate{candidate(0, "a", -1), candidate(1, "b", 0)}, 1, StageScore},
		"no scores: agreement":  {Rule{Verifier: Free}, []Candidate{candidate(0, "a", -1), candidate(1, "b", -1), candidate(2, "b", -1)}, 1, StageAgreement},
		"an empty patch":        {Rule{Verifier: Free}, []Candidate{candidate(0, "", .9), candidate(1, "b", .1)}, 1, StageEmpty},
		"an empty one with all": {Rule{Verifier: Hybrid, Top: 1}, []Candidate{candidate(0, "", 1, 9, 9), candidate(1, "b", 0, 0, 0)}, 1, StageEmpty},
		"all empty":             {Rule{Verifier: Hybrid}, []Candidate{candidate(1, "", .5), candidate(0, "", -1)}, 0, StageFirst},
		"tests before score": {Rule{Verifier: Exec}, []Candidate{candidate(0, "a", .9, 3, 0), candidate(1, "b", .1, 4, 0)},
			1, StageRegression},
		"reproduction after regression": {Rule{Verifier: Exec},
			[]Candidate{candidate(0, "a", .9, 4, 1), candidate(1, "b", .1, 4, 2), candidate(2, "c", .1, 3, 9)},
			1, StageReproduction},
		"the cut by score": {Rule{Verifier: Hybrid},
			[]Candidate{candidate(0, "a", .9, 3, 0), candidate(1, "b", .8, 4, 0), candidate(2, "c", .7, 3, 5), candidate(3, "d", .6, 5, 5)},
			1, StageRegression},
		"three are always tested": {Rule{Verifier: Hybrid},
			[]Candidate{breaking(candidate(0, "a", .95, 7, 1)), candidate(1, "b", .7, 8, 1), candidate(2, "c", .2, 8, 2)},
			2, StageReproduction},
		"equal patches count once": {Rule{Verifier: Hybrid},
			[]Candidate{candidate(0, "a", .9, 3, 0), candidate(1, "a", .9, 3, 0), candidate(2, "a", .8, 3, 0), candidate(3, "b", .7, 4, 0), candidate(4, "c", .6, 5, 0)},
			4, StageRegression},
		"what breaks nothing wins from below the cut": {Rule{Verifier: Hybrid, Top: 1},
			[]Candidate{breaking(candidate(0, "a", .9, 9, 9)), candidate(1, "b", .1, 8, 0)}, 1, StageBroken},
		"level with the last of the cut": {Rule{Verifier: Hybrid},
			[]Candidate{candidate(0, "a", .9, 3, 0), candidate(1, "b", .8, 3, 0), candidate(2, "c", .8, 5, 5), candidate(3, "d", .6, 6, 5)},
			2, StageRegression},
		"a larger cut": {Rule{Verifier: Hybrid, Top: 3},
			[]Candidate{candidate(0, "a", .9, 3, 0), candidate(1, "b", .8, 4, 0), candidate(2, "c", .7, 5, 5), candidate(3, "d", .6, 6, 5)},
			2, StageRegression},
		"no scores, no cut": {Rule{Verifier: Hybrid},
			[]Candidate{candidate(0, "a", -1, 3, 0), candidate(1, "b", -1, 4, 0), candidate(2, "c", -1, 5, 5)}, 2, StageRegression},
		"rejected ones do not count": {Rule{Verifier: Hybrid},
			[]Candidate{candidate(0, "a", .9, -1, 0), candidate(1, "b", .8, -1, 0), candidate(2, "c", .7, 1, 0), candidate(3, "d", .1, 2, 0)},
			3, StageRegression},
		"empty ones take no place in the cut": {Rule{Verifier: Hybrid},
			[]Candidate{candidate(0, "a", .9, 1, 0), candidate(1, "b", .8, 2, 0), candidate(2, "c", .7, 3, 0), candidate(3, "", 1)},
			2, StageRegression},
		"all rejected":  {Rule{Verifier: Exec}, []Candidate{candidate(0, "a", .1, -1, 0), candidate(1, "b", .8, -1, 0)}, 0, StageFirst},
		"not tested":    {Rule{Verifier: Exec}, []Candidate{candidate(0, "a", .9), candidate(1, "b", .1, 0, 0)}, 1, StageBroken},
		"agreement":     {Rule{Verifier: None}, []Candidate{candidate(0, "a", 1), candidate(2, "b", 0), candidate(1, "b", 0)}, 1, StageAgreement},
		"all alike":     {Rule{Verifier: Hybrid}, []Candidate{candidate(5, "a", .5, 1, 1), candidate(4, "a", .5, 1, 1)}, 4, StageFirst},
		"duplicates do": {Rule{Verifier: Free}, []Candidate{candidate(0, "x", .5), candidate(1, "a", .5), candidate(2, "a", .5)}, 1, StageAgreement},
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				rand.Shuffle(len(tc.cs), func(i, j int) { tc.cs[i], tc.cs[j] = tc.cs[j], tc.cs[i] })
				got, id := tc.rule.Choose(tc.cs), -1
				if got.Winner >= 0 {
					id = tc.cs[got.Winner].ID
				}
				if id != tc.winner || got.Decisive != tc.by {
					t.Fatalf("chose #%d by %s, want #%d by %s", id, got.Decisive, tc.winner, tc.by)
				}
				for i := range tc.cs {
					if got.Reason(tc.cs, i) == "" {
						t.Errorf("no reason for #%d", tc.cs[i].ID)
					}
				}
			}
		})
	}
}

// drawCandidates draws candidates with many ties, in which anything may be missing.
func drawCandidates(t *rapid.T, label string, most int) []Candidate {
	cs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Candidate {
		c := Candidate{Patch: rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e", "f", "g"}).Draw(t, "patch")}
		if rapid.IntRange(0, 4).Draw(t, "judged") > 0 {
			s := float64(rapid.IntRange(0, 4).Draw(t, "score")) / 4
			c.Score = &s
		}
		if rapid.IntRange(0, 5).Draw(t, "tested") > 0 {
			c.Tests = &Tests{
				Regression: rapid.IntRange(0, 2).Draw(t, "regression"), Reproduction: rapid.IntRange(0, 2).Draw(t, "reproduction"),
				Rejected: rapid.IntRange(0, 5).Draw(t, "rejected") == 0, Broken: rapid.IntRange(0, 1).Draw(t, "broken"),
			}
		}
		return c
	}), 1, most).Draw(t, label)
	tests := map[string]*Tests{}
	for i, c := range cs { // equal patches have equal results
		if first, known := tests[c.Patch]; known {
			cs[i].Tests = first
		}
		tests[c.Patch] = cs[i].Tests
	}
	return cs
}

func drawRule(t *rapid.T) Rule {
	return Rule{Verifier: rapid.SampledFrom(Verifiers()).Draw(t, "verifier"), Top: rapid.IntRange(0, 4).Draw(t, "top")}
}

// tied returns the candidates among which the published rule, taken literally, leaves the choice open: Choose returns
// one of them, and BestAtK draws among them at random.
func tied(r Rule, cs []Scored) []Scored {
	all := len(cs)
	if kept := filter(cs, func(c Scored) bool { return c.Patch != "" }); len(kept) > 0 {
		cs = kept
	}
	if kept := filter(cs, func(c Scored) bool { return c.Tests == nil || !c.Tests.Rejected }); r.Verifier.Tests() && len(kept) > 0 {
		cs = kept
	}
	number := func(s *float64) float64 {
		if s == nil {
			return -1
		}
		return *s
	}
	if kept := filter(cs, func(c Scored) bool { return c.Tests != nil && c.Tests.Broken == 0 && !c.Tests.Rejected }); r.Verifier.Tests() && len(kept) > 0 {
		cs = kept
	}
	if r.Verifier == Hybrid {
		var scores []float64 // one for each patch
		seen := map[string]bool{}
		for _, c := range cs {
			if !seen[c.Patch] {
				scores = append(scores, number(c.Score))
			}
			seen[c.Patch] = true
		}
		slices.Sort(scores)
		slices.Reverse(scores)
		n := cmp.Or(r.Top, max(3, all/2))
		if n < len(scores) {
			cs = filter(cs, func(c Scored) bool { return number(c.Score) >= scores[n-1] })
		}
	}
	most := func(value func(c Scored) float64) {
		best := math.Inf(-1)
		for _, c := range cs {
			best = max(best, value(c))
		}
		cs = filter(cs, func(c Scored) bool { return value(c) == best })
	}
	if r.Verifier.Tests() {
		most(func(c Scored) float64 {
			if c.Tests == nil {
				return -1
			}
			return float64(c.Tests.Regression)
		})
		most(func(c Scored) float64 {
			if c.Tests == nil {
				return -1
			}
			return float64(c.Tests.Reproduction)
		})
	}
	if r.Verifier == Free || r.Verifier == Hybrid {
		most(func(c Scored) float64 { return number(c.Score) })
	}
	return cs
}

// plain returns the candidate that the documented rule chooses, taken literally.
func plain(r Rule, all []Scored) Scored {
	proposals := func(c Scored) int {
		return len(filter(all, func(o Scored) bool { return o.Patch == c.Patch && c.Patch != "" }))
	}
	left := tied(r, shared(r, all))
	most := 0
	for _, c := range left {
		most = max(most, proposals(c))
	}
	left = filter(left, func(c Scored) bool { return proposals(c) == most })
	return slices.MinFunc(left, func(a, b Scored) int { return cmp.Compare(a.ID, b.ID) })
}

func filter(cs []Scored, keep func(Scored) bool) (kept []Scored) {
	for _, c := range cs {
		if keep(c) {
			kept = append(kept, c)
		}
	}
	return kept
}

// shared gives candidates with the same patch the best of their scores, if the rule has a cut.
func shared(r Rule, all []Scored) []Scored {
	if r.Verifier != Hybrid {
		return all
	}
	all = slices.Clone(all)
	for i, c := range all {
		for _, o := range all {
			if o.Patch == c.Patch && o.Score != nil && (all[i].Score == nil || *o.Score > *all[i].Score) {
				all[i].Score = o.Score
			}
		}
	}
	return all
}

func withTruth(t *rapid.T, cs []Candidate) []Scored {
	var all []Scored
	for i, c := range cs {
		c.ID = i
		all = append(all, Scored{c, rapid.Bool().Draw(t, fmt.Sprint("solved ", i))})
	}
	return all
}

// The choice is the one that the documented rule makes, taken literally, and does not depend on the order.
func TestChooseIsTheRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, all := drawRule(t), withTruth(t, drawCandidates(t, "candidates", 9))
		cs := make([]Candidate, len(all))
		for i, s := range all {
			cs[i] = s.Candidate
		}
		winner := cs[r.Choose(cs).Winner]
		if want := plain(r, all); winner.ID != want.ID {
			t.Fatalf("%+v chose #%d of %+v, want #%d", r, winner.ID, cs, want.ID)
		}
		shuffled := rapid.Permutation(cs).Draw(t, "shuffled")
		if again := shuffled[r.Choose(shuffled).Winner]; again.ID != winner.ID {
			t.Fatalf("chose #%d, and #%d in another order", winner.ID, again.ID)
		}
	})
}

// BestAtK is the mean over all subsets of size k, with ties drawn at random.
func TestBestAtKIsTheMeanOverSubsets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, all := drawRule(t), withTruth(t, drawCandidates(t, "candidates", 11))
		all = shared(r, all)
		k := rapid.IntRange(1, len(all)).Draw(t, "k")
		sum, n := 0.0, 0.0
		for bits := range 1 << len(all) {
			var subset []Scored
			for i := range all {
				if bits>>i&1 == 1 {
					subset = append(subset, all[i])
				}
			}
			if len(subset) == k {
				sum += share(tied(r, subset))
				n++
			}
		}
		if got := r.BestAtK(all, k); math.Abs(got-sum/n) > 1e-9 {
			t.Fatalf("%+v: best@%d is %v, and the mean over %v subsets %v", r, k, got, n, sum/n)
		}
	})
}

// Numbers of subsets that are too large for a float do no harm.
func TestBestAtKOfManyCandidates(t *testing.T) {
	t.Parallel()
	cs := make([]Scored, 1200)
	for i := range cs {
		cs[i] = Scored{Candidate{ID: i, Patch: fmt.Sprint(i)}, i%2 == 0}
	}
	for _, v := range Verifiers() {
		if got := (Rule{Verifier: v}).BestAtK(cs, 600); math.Abs(got-.5) > 1e-9 {
			t.Errorf("%s: %v, want a half", v, got)
		}
	}
}

// If the worst scores have the best results, the last candidate above the cut wins: the one with the 300th best score
// of 600. It is the m-th of all in as many subsets as have 299 before it and 300 after it.
func TestBestAtKWithACutOfManyCandidates(t *testing.T) {
	t.Parallel()
	const n, k, top = 1200, 600, 300
	cs := make([]Scored, n)
	want, ways := 0.0, newChoices(n)
	for m := range cs {
		score := float64(n-m) / n
		cs[m] = Scored{Candidate{ID: m, Patch: fmt.Sprint(m), Score: &score, Tests: &Tests{Regression: m}}, m%7 < 3}
		if cs[m].Solved {
			want += math.Exp(ways.log(m, top-1) + ways.log(n-1-m, k-top) - ways.log(n, k))
		}
	}
	if got := (Rule{Verifier: Hybrid}).BestAtK(cs, k); math.Abs(got-want) > 1e-9 {
		t.Errorf("best@%d is %v, want %v", k, got, want)
	}
}

// If there are only scores, Best@k has a textbook form: the chance that the i-th best of n is the best of k.
func TestBestAtKOnNoisyScores(t *testing.T) {
	t.Parallel()
	const n = 16
	random, ways := rand.New(rand.NewPCG(1, 2)), newChoices(n)
	for range 50 {
		cs := make([]Scored, n)
		for i := range cs {
			solved := random.Float64() < .4
			s := random.NormFloat64()
			if solved {
				s++
			}
			s = 1 / (1 + math.Exp(-s))
			cs[i] = Scored{Candidate{ID: i, Patch: fmt.Sprint(i), Score: &s}, solved}
		}
		order := slices.SortedFunc(slices.Values(cs), func(a, b Scored) int { return cmp.Compare(*b.Score, *a.Score) })
		for k := 1; k <= n; k++ {
			want := 0.0
			for i, c := range order { // the best of k is the i-th with probability C(n-1-i, k-1) / C(n, k)
				if c.Solved {
					want += math.Exp(ways.log(n-1-i, k-1) - ways.log(n, k))
				}
			}
			if got := (Rule{Verifier: Free}).BestAtK(cs, k); math.Abs(got-want) > 1e-12 {
				t.Fatalf("best@%d is %v, want %v", k, got, want)
			}
		}
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	cs := []Candidate{candidate(2, "b", -1), candidate(0, "a", -1), candidate(3, "", -1), candidate(1, "b", -1)}
	if got := fmt.Sprint(Groups(cs)); got != "[[1] [3 0]]" {
		t.Errorf("groups %s", got)
	}
}

// BenchmarkBestAtK computes the curve for 64 candidates under a rule with a cut. Some of them have the same patch.
func BenchmarkBestAtK(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	cs := make([]Scored, 64)
	for i := range cs {
		score := random.Float64()
		tests := &Tests{Regression: random.IntN(20), Reproduction: random.IntN(5)}
		cs[i] = Scored{Candidate{ID: i, Patch: fmt.Sprint(random.IntN(50)), Score: &score, Tests: tests}, i%3 == 0}
	}
	for b.Loop() {
		for k := 1; k <= len(cs); k++ {
			(Rule{Verifier: Hybrid}).BestAtK(cs, k)
		}
	}
}
