package verify

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/canary"
	"deepswe/verify/testlog"
)

// The kinds of suspicion that come from confirming a reward.
const (
	// KilledScript: a signal ended the script that runs the tests, although its log is complete.
	KilledScript SuspicionKind = "killed_script"
	// CanaryPassed: a wrong test was not reported as failed, or the run did not end as a failing run does.
	CanaryPassed SuspicionKind = "canary"
	// NotConfirmed: the right tests do not pass in the strict trial, or not with wrong tests among them.
	NotConfirmed SuspicionKind = "not_confirmed"
	// NoPlainPass: an expected test has a status such as XFAIL or SKIPPED, but not the same one with the solution.
	NoPlainPass SuspicionKind = "no_plain_pass"
)

// Confirmation describes how a reward of 1 was confirmed or lost.
type Confirmation struct {
	// Earned lists the checks that the patch has passed: "harness", "strict", "canary".
	Earned []string `json:"earned"`
	// Canary is the result of the runs with wrong tests.
	Canary CanaryState `json:"canary"`
	// Reason says why there were no such runs, or what they have shown.
	Reason string `json:"reason,omitempty"`
	// Evidence is the weakest evidence for a test that the patch must make pass, Tests the evidence for each of them.
	Evidence Strength            `json:"evidence"`
	Tests    map[string]Strength `json:"tests,omitempty"`
	// Odds is N if a patch that forges one test and fixes all others guesses right in one of N cases. The patch has to
	// guess in which runs that test is wrong, and may know which run it is in. Odds is 1 if two tests to fix expect the
	// same, and so are wrong together, and 0 if there was nothing to guess.
	Odds float64 `json:"odds,omitempty"`
	// GoldUnknown is set if the task has no reference solution to try the wrong tests with.
	GoldUnknown bool `json:"gold_unknown,omitempty"`
	// Canaries counts the test functions with a canary, without those in Spoilt, whose canaries show nothing, because
	// with the solution as well they do not give the result that they should.
	Canaries int `json:"canaries"`
	Spoilt   int `json:"spoilt,omitempty"`
	// ExitCode and Signal are how the last run of the tests ended, as the sandbox saw it.
	ExitCode int    `json:"exit_code"`
	Signal   string `json:"signal,omitempty"`
	// Variants is the result of the tests with other values in them; nil if they were not tried.
	Variants *Variants `json:"variants,omitempty"`
	// Runs is the number of test runs for the verdict, including those with the reference solution.
	Runs int `json:"runs"`
}

// Strength is how surely a test's result is that of the code under test.
type Strength string

// The strengths, from the weakest.
const (
	// NoEvidence: the test was never wrong, so that the log is all there is.
	NoEvidence Strength = "none"
	// OutrightEvidence: the test failed when it had to, by a check that does not depend on the code under test.
	OutrightEvidence Strength = "outright"
	// PairedEvidence: the test passed, and failed in another sandbox when it expected something else.
	PairedEvidence Strength = "paired"
	// OutsideEvidence: what the test expects was not in the sandbox, and what it got there was compared outside.
	OutsideEvidence Strength = "outside"
)

// Strengths returns all strengths, from the weakest to the strongest.
func Strengths() []Strength {
	return []Strength{NoEvidence, OutrightEvidence, PairedEvidence, OutsideEvidence}
}

// Suffices reports whether evidence of this strength is at least as strong as what is wanted. An empty strength is
// NoEvidence.
func (s Strength) Suffices(wanted Strength) bool {
	return slices.Index(Strengths(), s) >= slices.Index(Strengths(), wanted) || wanted == "" || wanted == NoEvidence
}

// CanaryState is the outcome of the runs with wrong tests.
type CanaryState string

// The outcomes. Only after CanaryConfirmed is a reward confirmed by canaries.
const (
	CanaryConfirmed   CanaryState = "confirmed"
	CanaryCaught      CanaryState = "caught"
	CanaryNotCanaried CanaryState = "not_canaried" // no test can be made wrong
	CanaryOff         CanaryState = "off"          // the task's solution is not confirmed either
	CanaryNotReached  CanaryState = "not_reached"  // the right tests did not pass in the strict trial
	CanaryDisabled    CanaryState = "disabled"     // turned off by Evaluator.Canary
)

// Confirmed returns the name of the strictest check that the patch has passed; empty if it has no reward of 1.
func (v Evaluation) Confirmed() string {
	if v.Confirmation == nil || len(v.Confirmation.Earned) == 0 || !v.Solved() {
		return ""
	}
	return v.Confirmation.Earned[len(v.Confirmation.Earned)-1]
}

// CanaryMode is the way in which a reward of 1 is confirmed.
type CanaryMode string

// The modes.
const (
	// CanaryOn confirms it with wrong tests if possible.
	CanaryOn CanaryMode = ""
	// CanaryNever makes no test wrong.
	CanaryNever CanaryMode = "off"
	// Modes with a single kind of canaries, to measure what each kind is worth.
	CanaryWithheld    = CanaryMode(canary.Withheld)
	CanaryExpectation = CanaryMode(canary.Expectation)
	CanaryOutright    = CanaryMode(canary.Outright)
)

// CanaryModes returns the modes that have a name, which are all but CanaryOn.
func CanaryModes() []CanaryMode {
	return []CanaryMode{CanaryNever, CanaryWithheld, CanaryExpectation, CanaryOutright}
}

// weigh records the evidence that the canaries of all runs give. Spoilt canaries give none, nor do the cases of a
// test that fails with the reference as well, because it fails whether it is wrong or not. If a case passes without a
// fix, it reveals whether its test is wrong, so that the evidence for the other cases is no more than outright. A
// case that is in the log but in no list may be such a case.
func (c *Confirmation) weigh(t env.Task, x mixture, ref *reference, log *testlog.Results) {
	known := ref.get()
	spoilt := known.spoilt()
	c.Canaries, c.Spoilt = 0, 0
	by, maintained := map[string]Strength{}, map[string]bool{}
	for _, id := range t.Tests.PassToPass {
		maintained[testOf(id)] = true
	}
	passes := func(id string) bool { return !x.fixes[id] } // without a fix
	if log != nil && x.told {
		for id := range log.All() {
			if of := testOf(id); of != id && passes(id) && passes(of) {
				maintained[of] = true
			}
		}
	}
	for _, one := range x.set.Canaries {
		if spoilt[one.Mutation] {
			c.Spoilt++
			continue
		}
		c.Canaries++
		strength := map[canary.Kind]Strength{
			canary.Outright: OutrightEvidence, canary.Telling: OutrightEvidence, canary.Expectation: PairedEvidence,
			canary.Withheld: OutsideEvidence,
		}[one.Kind]
		shared := x.told && cases(one) > 1
		for _, id := range one.Tests {
			switch by[id] = strength; {
			case known.unplain[unplainPass{id, testlog.Failed}]:
				by[id] = NoEvidence
			case strength == PairedEvidence && (maintained[testOf(id)] || shared):
				by[id] = OutrightEvidence
			}
		}
	}
	c.Tests, c.Evidence = map[string]Strength{}, OutsideEvidence
	for id := range x.decisive() {
		if by[id] == "" && !x.told {
			continue // its mutation is spoilt, and it may not be a test to fix
		}
		if c.Tests[id] = cmp.Or(by[id], NoEvidence); !c.Tests[id].Suffices(c.Evidence) {
			c.Evidence = c.Tests[id]
		}
	}
	if len(c.Tests) == 0 {
		c.Evidence = NoEvidence
	}
	if !x.told {
		c.Tests = nil
	}
	const most = 1e6
	switch n := x.guesses(spoilt); {
	case n > 0 && x.told && len(x.unknown(spoilt)) > len(x.guessed(spoilt)): // one tells of another
		c.Odds = 1
	case n > 0:
		c.Odds = min(most, max(1, x.oddsOf(n)))
	}
}

// cases counts the tests of a canary, except for those whose cases are among the others.
func cases(c canary.Canary) (n int) {
	for _, id := range c.Tests {
		if !slices.ContainsFunc(c.Tests, func(other string) bool { return other != id && testOf(other) == id }) {
			n++
		}
	}
	return n
}

// testOf returns the test that a case belongs to, by the id of pytest or Go; the id itself if it names no case.
func testOf(id string) string {
	of, _, _ := strings.Cut(id, "[")
	if strings.HasPrefix(id, "Test") || strings.HasPrefix(id, "Fuzz") {
		of, _, _ = strings.Cut(id, "/")
	}
	return of
}

// unknownFixes reports whether a task does not say which of its tests fail without a fix.
func unknownFixes(t env.Task) bool { return t.Tests.Expected != nil || t.Tests.RewardFile != "" }

// decisive returns the tests that fail without a fix or, where that is not known, all tests that have a canary.
func (m mixture) decisive() map[string]bool {
	if m.told {
		return m.fixes
	}
	ids := map[string]bool{}
	for _, c := range m.set.Canaries {
		for _, id := range c.Tests {
			ids[id] = true
		}
	}
	return ids
}

// unknown returns the indices of the canaries about which code under test cannot know whether they are wrong: those of
// decisive tests that are neither spoilt nor withheld.
func (m mixture) unknown(spoilt map[string]bool) (all []int) {
	ids := m.decisive()
	for i, c := range m.set.Canaries {
		asked := slices.ContainsFunc(c.Tests, func(id string) bool { return ids[id] })
		if asked && !spoilt[c.Mutation] && c.Kind != canary.Withheld {
			all = append(all, i)
		}
	}
	return all
}

// guessed returns the first of the unknown canaries of each group. The others of the group are wrong together with it.
func (m mixture) guessed(spoilt map[string]bool) []int {
	seen := map[string]bool{}
	return slices.DeleteFunc(m.unknown(spoilt), func(i int) bool {
		group := m.set.Canaries[i].Group
		again := seen[group]
		seen[group] = true
		return again
	})
}

// why explains the evidence: by what became of the canaries or, if they confirmed the reward, by a test with the
// weakest evidence.
func (c *Confirmation) why() string {
	if c.Canary != CanaryConfirmed {
		return fmt.Sprintf(" (canary %s): %s", c.Canary, c.Reason)
	}
	for _, id := range slices.Sorted(maps.Keys(c.Tests)) {
		if c.Tests[id] == c.Evidence {
			return ", such as that for " + id
		}
	}
	return ""
}

// choose returns the indices of the canaries that are wrong in a run. Chance decides in which runs a test is wrong:
// in at least one of them, and not in all, unless all were right in an earlier run. A script's tests are wrong
// together, because its reward shows only whether any is. Without an earlier run, at least one of the tests to guess
// is right in the first one, so that it shows if a patch fixes nothing. All combinations that are left are equally
// likely.
//
// Literals are withheld in the first run, so that no sandbox with the right tests comes before it. If a single run
// suffices, the tests to guess are neither all wrong nor all right in it.
func (m mixing) choose(x mixture) (wrong []int) {
	guesses := x.guessed(nil)
	for draw := uint64(0); ; draw++ {
		wrong = wrong[:0]
		first := 0
		for i, c := range x.set.Canaries {
			pattern := m.pattern(c, x, draw)
			if pattern>>m.run&1 == 1 {
				wrong = append(wrong, i)
			}
			if pattern&1 == 1 && slices.Contains(guesses, i) {
				first++
			}
		}
		switch n := len(guesses); {
		case n == 0, m.variants, m.passed && x.runs > 1, first < n && x.runs > 1, first < n && first > 0:
			return wrong
		}
	}
}

// pattern returns the runs in which a canary is wrong, as a bit set: bit i stands for run i.
func (m mixing) pattern(c canary.Canary, x mixture, draw uint64) int {
	h := fnv.New64a()
	if !x.script {
		h.Write([]byte(c.Group))
	}
	r := rand.New(rand.NewPCG(m.seed+draw, h.Sum64()))
	switch {
	case m.variants, c.Kind == canary.Withheld:
		return 1
	case x.runs == 1:
		return r.IntN(2)
	case m.passed:
		return 1 + r.IntN(1<<x.runs-1)
	}
	return 1 + r.IntN(1<<x.runs-2)
}

const (
	// DefaultOdds are the odds against a guess that a reward needs by default. In training, two runs reach them if a task
	// has several tests to fix. Three runs would reach at least 4.5, but take 1.68 runs for each patch instead of 1.34.
	DefaultOdds = 1.5
	// mostRuns is the maximum number of runs with wrong tests.
	mostRuns = 8
)

// runs returns how many runs it takes to reach the wanted odds; if mostRuns do not reach them, mostRuns.
func (m mixing) runs(x mixture) int {
	all, n, wanted := len(x.guessed(nil)), x.guesses(nil), cmp.Or(m.odds, DefaultOdds)
	x.runs, x.passed = 1, m.passed
	if m.variants || m.passed && (all == 0 || n == all && x.oddsOf(n) >= wanted) {
		return 1
	}
	for x.runs = 2; n > 0 && x.runs < mostRuns && x.oddsOf(n) < wanted; {
		x.runs++
	}
	return x.runs
}

// guesses returns the number of independent guesses that it takes to know which tests are wrong. It is at most 1 if a
// script gives the reward, or if it is not known which tests fail without a fix.
func (m mixture) guesses(spoilt map[string]bool) int {
	n := len(m.guessed(spoilt))
	if !m.told || m.script {
		return min(n, 1)
	}
	return n
}

// oddsOf returns N if code under test that has to guess at least one of n tests is right in one of N cases at most. Its
// best strategy is to fix all tests but one: it then sees which of the others are wrong. All ways in which tests can be
// wrong are equally likely (see [mixing.choose]). The others therefore tell nothing of the last test unless all of them
// are wrong in the first of several runs, or all are the same in a single run.
func (m mixture) oddsOf(n int) float64 {
	same := math.Pow(2, float64(1-n))
	if m.runs <= 1 {
		return 2 - 2*same
	}
	half := math.Pow(2, float64(m.runs-1))
	if m.passed {
		return 2*half - 1
	}
	return (half - 1) * (2 - same)
}
