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

// contest is the candidates for one task, and what is known about them. Its slices are as long as the set's entries.
type contest struct {
	set Set
	// patches are the keys of the patches; empty for one that changes nothing.
	patches    []string
	judgements []judge.Judgement
	judged     []bool
	// baselines are the scripts; results are by patch and by the script's place.
	baselines []suite.Baseline
	results   map[string][]*suite.Result
	// failures say why a candidate has no judgement or lacks a result.
	failures []string
	verdicts []suite.Verdict
	choice   rank.Choice
}

func newContest(set Set) (*contest, error) {
	n := len(set.Entries)
	c := &contest{
		set: set, patches: make([]string, n), judgements: make([]judge.Judgement, n), judged: make([]bool, n),
		results: map[string][]*suite.Result{}, failures: make([]string, n),
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

// distinct returns the places of one candidate for each distinct patch, the one with the lowest number.
func (c *contest) distinct() []int {
	var places []int
	for _, group := range rank.Groups(c.candidates()) {
		places = append(places, group[0])
	}
	return places
}

// candidates are the entries as the rule sees them.
func (c *contest) candidates() []rank.Candidate {
	counts := map[string]bool{}
	for _, v := range c.verdicts {
		counts[v.ID] = v.Reason == ""
	}
	cs := make([]rank.Candidate, len(c.patches))
	for i, e := range c.set.Entries {
		cs[i] = rank.Candidate{ID: e.ID, Patch: c.patches[i], Tests: c.tests(c.patches[i], counts)}
		if c.judged[i] {
			cs[i].Score = c.judgements[i].Score
		}
	}
	return cs
}

// tests adds up the results of a patch; nil where one of the scripts was not run.
func (c *contest) tests(patch string, counts map[string]bool) *rank.Tests {
	results := c.results[patch]
	if len(results) == 0 {
		return nil
	}
	var t rank.Tests
	for i, r := range results {
		switch {
		case c.baselines[i].Problem != "":
			continue
		case r == nil:
			return nil
		}
		t.Rejected = t.Rejected || r.Rejected != ""
		for _, name := range r.Passed {
			switch s := c.baselines[i].Script; {
			case !counts[suite.TestID(s.Name, name)]:
			case s.Kind == suite.Regression:
				t.Regression++
			default:
				t.Reproduction++
			}
		}
	}
	if !c.tested() {
		return nil
	}
	return &t
}

// tested reports whether there is any script to test with.
func (c *contest) tested() bool {
	return slices.ContainsFunc(c.baselines, func(b suite.Baseline) bool { return b.Problem == "" })
}

// filter decides which tests count, from the results that there are.
func (c *contest) filter() {
	kinds := map[string]suite.Kind{}
	for _, b := range c.baselines {
		for _, name := range b.Kept {
			kinds[suite.TestID(b.Script.Name, name)] = b.Script.Kind
		}
	}
	var columns []suite.Column
	for _, i := range c.distinct() {
		column := suite.Column{Passed: map[string]bool{}}
		complete := len(c.results[c.patches[i]]) > 0
		for n, r := range c.results[c.patches[i]] {
			if r == nil {
				complete = complete && c.baselines[n].Problem != ""
				continue
			}
			column.Rejected = column.Rejected || r.Rejected != ""
			for _, name := range r.Passed {
				column.Passed[suite.TestID(c.baselines[n].Script.Name, name)] = true
			}
		}
		if complete {
			columns = append(columns, column)
		}
	}
	c.verdicts = suite.Filter(kinds, columns)
}

// full is the most that tests can give.
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

// contenders are the candidates while tests are still to come. One whose scripts could not all be run is not waited
// for.
func (c *contest) contenders() []rank.Contender {
	cs := c.candidates()
	state := make([]rank.Contender, len(cs))
	for i, one := range cs {
		state[i] = rank.Contender{Candidate: one, Untested: c.results[one.Patch] == nil && one.Patch != ""}
	}
	return state
}

// stamp stands for the files of an entry, without reading the trajectory; empty where that is not there.
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
