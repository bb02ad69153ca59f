package ranking

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/testkit"
	"deepswe/verify/rank"
	"deepswe/verify/rank/suite"
	"deepswe/verify/swe"
)

// writing is a model that writes a test for the issue, and submits.
type writing struct{}

func (writing) Complete(_ context.Context, r agent.Request) (agent.Reply, error) {
	text := "<function=execute_bash>\n<parameter=cmd>mkdir deepswe_reproduction && " +
		`echo 'case $(head -n1 num*.py) in 7) echo PASSED seven;; *) echo FAILED seven;; esac' ` +
		"> deepswe_reproduction/run.sh</parameter>\n</function>"
	if slices.ContainsFunc(r.Messages, func(m agent.Message) bool { return m.Role == agent.RoleAssistant }) {
		text = "<function=finish>\n<parameter=command>submit</parameter>\n</function>"
	}
	return agent.Reply{Message: agent.Message{Role: agent.RoleAssistant, Content: text}, FinishReason: "stop"}, nil
}

// withWriter adds four tests written for the issue. 3 is the only number that breaks a regression test.
func withWriter(r *Ranking, p env.Provider) {
	format, _ := agent.FormatNamed("xml")
	writer := &suite.Writer{Runner: &swe.Runner{Tasks: r.Tasks, Attempt: attempt.Attempt{
		Settings: agent.Settings{
			Model: writing{}, ModelName: "writing", Format: format, Limits: agent.Limits{Steps: 5}, Prompt: suite.Prompt(false),
		},
		Provider: p, Run: "spent",
	}}}
	writer.Runner.Dir = func(j run.Job) (string, error) { return r.Store.Attempt(j, writer.Key(r.Tasks[j.Task])) }
	r.Tests.Writer, r.Tests.Attempts = writer, 4
	r.Tests.Command = "case $(head -n1 num*.py) in 3) echo FAILED t::old;; *) echo PASSED t::old;; esac"
}

// With Early, only what can still change the choice is run, and the choice is that of testing everything. A candidate
// run is one script on one patch.
func TestOnlyWhatCanDecideIsSpent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		numbers []int // of the candidates
		scores  int   // how many of them, the first ones, have a score: 0.9, 0.8, …
		chosen  int
		early   Cost
		all     Cost
	}{
		"one patch of three breaks nothing": {[]int{3, 3, 7}, 3, 2,
			Cost{CandidateRuns: 3, BaseRuns: 1}, Cost{CandidateRuns: 6, BaseRuns: 5, Written: 4}},
		"the best passes everything": {[]int{7, 5, 6}, 3, 0,
			Cost{CandidateRuns: 4, BaseRuns: 5, Written: 4}, Cost{CandidateRuns: 6, BaseRuns: 5, Written: 4}},
		"three scores of six, all above the cut": {[]int{7, 5, 6, 7, 7, 7}, 3, 0,
			Cost{CandidateRuns: 4, BaseRuns: 5, Written: 4}, Cost{CandidateRuns: 12, BaseRuns: 5, Written: 4}},
		"three scores of six, and one breaks a test": {[]int{3, 5, 6, 7, 3, 3}, 3, 3,
			Cost{CandidateRuns: 9, BaseRuns: 5, Written: 4}, Cost{CandidateRuns: 12, BaseRuns: 5, Written: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := t.TempDir()
			for i, n := range c.numbers {
				text := patch(n, .9-.1*float64(i)) // the score makes each patch distinct
				testkit.WriteFile(t, filepath.Join(path, "number", fmt.Sprintf("%d.diff", i)), text)
			}
			for early, want := range map[bool]Cost{true: c.early, false: c.all} {
				r, p, endpoint := newRanking(t, path, filepath.Join(t.TempDir(), "rank"))
				withWriter(r, p)
				r.Rule, r.Early, r.Workers, r.retries = rank.Rule{Verifier: rank.Hybrid}, early, 1, -1
				endpoint.failAt = int32(c.scores) + 1
				rep, err := r.Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				got := Cost{CandidateRuns: rep.Cost.CandidateRuns, BaseRuns: rep.Cost.BaseRuns, Written: rep.Cost.Written}
				if chosen := *rep.Results[0].Chosen; chosen != c.chosen || got != want {
					t.Errorf("early %v: chose #%d, want #%d; spent %+v, want %+v", early, chosen, c.chosen, got, want)
				}
			}
		})
	}
}
