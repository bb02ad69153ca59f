package ranking

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"

	"deepswe/verify/rank"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/suite"
)

// contest holds the candidates for one task, and what is known about them. Its slices are indexed like the set's
// entries, unless noted.
type contest struct {
	set Set
	// patches holds the keys of the patches, "" for an empty patch.
	patches []string
	// judgements is nil for candidates that were not judged.
	judgements []*judge.Judgement
	// baselines holds the scripts. results is indexed by patch, then like baselines.
	baselines []suite.Baseline
	results   map[string][]*suite.Result
	// lost holds the scripts, by patch, whose results are missing although they are needed.
	lost map[string][]int
	// failures says why a candidate has no judgement, or lacks a result.
	failures []string

	// verdicts says which tests count; counts says so for each baseline, by the test's name. Before filtering, all count.
	verdicts []suite.Verdict
	counts   []map[string]bool
	choice   rank.Choice
}

func newContest(set Set) (*contest, error) {
	n := len(set.Entries)
	c := &contest{
		set: set, patches: make([]string, n), judgements: make([]*judge.Judgement, n),
		results: map[string][]*suite.Result{}, lost: map[string][]int{}, failures: make([]string, n),
	}
	for i, e := range set.Entries {
		patch, err := e.ReadPatch()
		if err != nil {
			return nil, fmt.Errorf("read the patch of %s %s: %w", set.Task, e.Name, err)
		}
		c.patches[i] = rank.PatchKey(patch)
	}
	return c, nil
}

// distinct returns the index of one candidate for each distinct patch, the one with the lowest number.
func (c *contest) distinct() []int {
	var places []int
	for _, group := range rank.Groups(c.candidates()) {
		places = append(places, group[0])
	}
	return places
}

// candidates returns the entries as input of the rule.
func (c *contest) candidates() []rank.Candidate {
	cs := make([]rank.Candidate, len(c.patches))
	tests := map[string]*rank.Tests{}
	for i, e := range c.set.Entries {
		patch := c.patches[i]
		if _, known := tests[patch]; !known {
			tests[patch] = c.tests(patch)
		}
		cs[i] = rank.Candidate{ID: e.ID, Patch: patch, Tests: tests[patch]}
		if j := c.judgements[i]; j != nil {
			cs[i].Score = j.Score
		}
	}
	return cs
}

// tests adds up the results of a patch. It returns nil if no script was run, or not the regression tests. Scripts of
// reproduction tests without a result add nothing: either they cannot change the choice, or filter lets none of their
// tests count.
func (c *contest) tests(patch string) *rank.Tests {
	results := c.results[patch]
	if len(results) == 0 || !c.tested() {
		return nil
	}
	var t rank.Tests
	ran := false
	for i, r := range results {
		regression := c.baselines[i].Script.Kind == suite.Regression
		switch {
		case c.baselines[i].Problem != "", r == nil && !regression:
			continue
		case r == nil:
			return nil
		}
		ran = true
		t.Rejected = t.Rejected || r.Rejected != ""
		passed := len(r.Passed)
		if c.counts != nil {
			passed = 0
			for _, name := range r.Passed {
				passed += countIf(c.counts[i][name])
			}
		}
		if regression {
			t.Regression += passed
			t.Broken += len(c.baselines[i].Kept) - len(r.Passed)
		} else {
			t.Reproduction += passed
		}
	}
	if !ran {
		return nil
	}
	return &t
}

func (c *contest) testedBy(kind suite.Kind) bool {
	return slices.ContainsFunc(c.baselines, func(b suite.Baseline) bool {
		return b.Problem == "" && b.Script.Kind == kind
	})
}

func (c *contest) tested() bool {
	return slices.ContainsFunc(c.baselines, func(b suite.Baseline) bool { return b.Problem == "" })
}

// filter decides which tests count, from the results of the patches that the rule leaves to compare.
func (c *contest) filter(rule rank.Rule) {
	kinds := map[string]suite.Kind{}
	ids := make([]map[string]string, len(c.baselines)) // by test name
	left := c.left(rule)
	var unfair []suite.Verdict
	for n, b := range c.baselines {
		ids[n] = make(map[string]string, len(b.Kept))
		fair := c.everywhere(n, left)
		for _, name := range b.Kept {
			id := suite.TestID(b.Script.Name, name)
			if !fair {
				unfair = append(unfair, suite.Verdict{ID: id, Kind: b.Script.Kind, Reason: "not run on every patch"})
				continue
			}
			ids[n][name], kinds[id] = id, b.Script.Kind
		}
	}
	var columns []suite.Column
	for _, i := range left {
		column := suite.Column{Passed: map[string]bool{}}
		complete := len(c.results[c.patches[i]]) > 0
		for n, r := range c.results[c.patches[i]] {
			if r == nil {
				complete = complete && len(ids[n]) == 0
				continue
			}
			column.Rejected = column.Rejected || r.Rejected != ""
			for _, name := range r.Passed {
				if id, kept := ids[n][name]; kept {
					column.Passed[id] = true
				}
			}
		}
		if complete {
			columns = append(columns, column)
		}
	}
	c.verdicts = append(suite.Filter(kinds, columns), unfair...)
	counting := map[string]bool{}
	for _, v := range c.verdicts {
		counting[v.ID] = v.Reason == ""
	}
	c.counts = make([]map[string]bool, len(ids))
	for n := range ids {
		c.counts[n] = make(map[string]bool, len(ids[n]))
		for name, id := range ids[n] {
			c.counts[n][name] = counting[id]
		}
	}
}

// everywhere reports whether a script may count. If a failure cost one of the patches left its result, a script of
// reproduction tests counts for none, so that the failure is not held against that patch.
func (c *contest) everywhere(script int, left []int) bool {
	return c.baselines[script].Script.Kind == suite.Regression || !slices.ContainsFunc(left, func(i int) bool {
		patch := c.patches[i]
		return slices.Contains(c.lost[patch], script) && c.results[patch][script] == nil
	})
}

// full returns the best possible result.
func (c *contest) full() (t rank.Tests) {
	for _, b := range c.baselines {
		if b.Script.Kind == suite.Regression {
			t.Regression += len(b.Kept)
		} else {
			t.Reproduction += len(b.Kept)
		}
	}
	return t
}

// left returns the index of one candidate for each patch that the rule leaves to compare by tests.
func (c *contest) left(rule rank.Rule) []int {
	left := map[string]bool{}
	for _, i := range rule.Left(c.candidates()) {
		left[c.patches[i]] = true
	}
	return slices.DeleteFunc(c.distinct(), func(i int) bool { return !left[c.patches[i]] })
}

// toTest returns the candidates whose results can still change the choice. tested says which patches have been tried
// with the tests of the kind.
func (c *contest) toTest(rule rank.Rule, kind suite.Kind, tested map[string]bool) []int {
	full := c.full()
	untested := func(patch string) bool { return !tested[patch] }
	if kind == suite.Regression {
		return rule.ToTest(c.candidates(), untested, func(rank.Candidate) rank.Tests { return full }, nil)
	}
	return rule.ToTest(c.candidates(), untested, func(one rank.Candidate) rank.Tests {
		if one.Tests == nil {
			return full
		}
		best := *one.Tests
		best.Reproduction = full.Reproduction
		return best
	}, &full)
}

// stamp identifies the files of an entry without reading the trajectory. It is empty if there is no trajectory.
func stamp(config string, set Set, e Entry, patch string) string {
	trajectory := "none"
	if e.Trajectory != "" {
		info, err := os.Stat(e.Trajectory)
		if err != nil {
			return ""
		}
		trajectory = fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s\x00%s", config, set.Task, e.ID, patch, trajectory))
	return "stamp:" + hex.EncodeToString(sum[:])
}
