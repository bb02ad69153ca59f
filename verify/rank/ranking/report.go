package ranking

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"deepswe/agent"
	"deepswe/env/disk"
	"deepswe/verify/harness"
	"deepswe/verify/rank"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/suite"
	"deepswe/verify/swe"
)

// Report is the content of ranking.json.
type Report struct {
	Type    string `json:"type"` // "ranking"
	Version int    `json:"version"`
	// Run is the path of the candidates.
	Run      string        `json:"run"`
	Verifier rank.Verifier `json:"verifier"`
	Top      int           `json:"top,omitempty"` // of the hybrid rule; 0 means half
	Judge    string        `json:"judge,omitempty"`

	Tasks      int `json:"tasks"`
	Candidates int `json:"candidates"`
	// Distinct counts the distinct patches, Empty the candidates with an empty patch.
	Distinct int `json:"distinct"`
	Empty    int `json:"empty"`
	// Scored counts the candidates with a score, Tested those with test results.
	Scored int `json:"scored"`
	Tested int `json:"tested"`
	// Truth counts the candidates that are known to solve their task, or not to solve it.
	Truth int `json:"truth"`
	// Chosen counts the tasks with a choice, ChosenSolved those whose choice is known to solve the task.
	Chosen       int `json:"chosen"`
	ChosenSolved int `json:"chosen_solved"`
	// Curves holds Best@k for each verifier with recorded scores or results, not only the one that has chosen, and
	// Pass@k ("oracle"). It is empty without truth.
	Curves []Curve `json:"curves"`
	// Contexts compares context lengths, if the run has several.
	Contexts []swe.ContextResult `json:"contexts,omitempty"`
	Cost     Cost                `json:"cost"`

	// Lacks names what the verifier goes by and no candidate has: "scores", "test results". It is empty if no task has
	// several patches.
	Lacks []string `json:"lacks,omitempty"`

	Notes   []string     `json:"notes"`
	Results []TaskReport `json:"results,omitempty"`
}

// TaskReport is the ranking of one task.
type TaskReport struct {
	Task string `json:"task"`
	// Chosen is the number of the chosen attempt; nil if there is no candidate.
	Chosen *int `json:"chosen"`
	// Reason is why it was chosen, Stage the step of the rule that decided, Agree the number of candidates with the
	// same patch.
	Reason     string            `json:"reason,omitempty"`
	Stage      rank.Stage        `json:"stage,omitempty"`
	Agree      int               `json:"agree,omitempty"`
	Candidates []CandidateReport `json:"candidates"`
	// Scripts holds the scripts that were run, Tests the verdicts on the tests that were kept after the run on the
	// base.
	Scripts []ScriptReport  `json:"scripts,omitempty"`
	Tests   []suite.Verdict `json:"tests,omitempty"`
}

// CandidateReport is one candidate.
type CandidateReport struct {
	Attempt int    `json:"attempt"`
	Name    string `json:"name"`
	Patch   string `json:"patch,omitempty"` // its key, see rank.PatchKey
	// SameAs is the first attempt with the same patch, if that is another one.
	SameAs     *int             `json:"same_as,omitempty"`
	StopReason agent.StopReason `json:"stop_reason,omitempty"`
	Judgement  *judge.Judgement `json:"judgement,omitempty"`
	Tests      *rank.Tests      `json:"tests,omitempty"`
	// Ran holds the results of the scripts on the patch, whichever of their tests count.
	Ran []ScriptResult `json:"ran,omitempty"`
	// Rejected is the reason why the patch cannot be chosen.
	Rejected string `json:"rejected,omitempty"`
	// Missing is the reason why there is no score, or why there are no results.
	Missing string     `json:"missing,omitempty"`
	Stage   rank.Stage `json:"stage"`
	Reason  string     `json:"reason"`
	Solved  *bool      `json:"solved,omitempty"`
}

// Label returns the attempt's number and, for a candidate that is not from a run, its file.
func (c CandidateReport) Label() string {
	number := fmt.Sprintf("#%d", c.Attempt)
	if c.Name == number {
		return number
	}
	return fmt.Sprintf("%s (%s)", number, c.Name)
}

// ScriptResult is the result of one script on a patch: of the Kept tests that behave as they should on the base, Passed
// pass. Failed names the first of the others.
type ScriptResult struct {
	Kind   suite.Kind `json:"kind"`
	Kept   int        `json:"kept"`
	Passed int        `json:"passed"`
	Failed []string   `json:"failed,omitempty"`
}

// mostFailed is how many failed tests of a script have a name in the report.
const mostFailed = 10

// ScriptReport is the result of one script on the base.
type ScriptReport struct {
	Name    string          `json:"name"`
	Kind    suite.Kind      `json:"kind,omitempty"`
	Command string          `json:"command,omitempty"`
	Kept    int             `json:"kept"`
	Dropped []suite.Dropped `json:"dropped,omitempty"`
	Problem string          `json:"problem,omitempty"`
}

// report returns a report of the current results, and writes the ranking's files.
func (r *Ranking) report() (*Report, error) {
	rep := &Report{
		Type: "ranking", Version: 1, Run: r.Source.Path, Verifier: r.Rule.Verifier, Top: r.Rule.Top, Cost: r.cost,
		Notes: slices.Concat([]string{}, r.Source.Notes), Tasks: len(r.contests), Curves: []Curve{},
		Contexts: r.Source.Contexts,
	}
	if r.Judge != nil {
		rep.Judge = r.Judge.Model
	}
	for _, c := range r.contests {
		rep.add(c)
	}
	rep.Curves = r.curves()
	rep.note()
	rep.noteLacks()
	if err := disk.WriteStream(r.Store.Path(ReportFile), rep.write); err != nil {
		return nil, err
	}
	if err := r.writePreds(); err != nil {
		return nil, err
	}
	return rep, disk.WriteStream(r.Store.Path(PageFile), rep.Page().Write)
}

// write writes the report as JSON, one line for each task. Encoding it as a whole would take several times its size in
// memory.
func (rep *Report) write(to io.Writer) error {
	head := *rep
	head.Results = nil
	data, err := disk.MarshalJSON(head)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(to, 1<<16)
	fmt.Fprintf(w, "%s,\n\"results\":[", bytes.TrimSuffix(data, []byte("}")))
	for i, t := range rep.Results {
		if data, err = disk.MarshalJSON(t); err != nil {
			return err
		}
		separator := "\n"
		if i > 0 {
			separator = ",\n"
		}
		fmt.Fprintf(w, "%s%s", separator, data)
	}
	fmt.Fprint(w, "\n]}\n")
	return w.Flush()
}

// add adds a task to the report.
func (rep *Report) add(c *contest) {
	cs := c.candidates()
	t := TaskReport{Task: c.set.Task, Candidates: []CandidateReport{}, Tests: c.verdicts}
	first := map[string]int{}
	for _, group := range rank.Groups(cs) {
		first[cs[group[0]].Patch] = cs[group[0]].ID
		rep.Distinct++
	}
	for i, e := range c.set.Entries {
		one := CandidateReport{
			Attempt: e.ID, Name: e.Name, Patch: c.patches[i], StopReason: e.StopReason, Tests: cs[i].Tests,
			Ran: c.ran(i), Rejected: c.rejected(i), Missing: c.failures[i], Stage: c.choice.Stages[i],
			Reason: c.choice.Reason(cs, i), Solved: e.Solved,
		}
		if id, ok := first[c.patches[i]]; ok && id != e.ID {
			one.SameAs = &id
		}
		switch {
		case one.Rejected != "" && one.Stage == rank.StageRejected:
			one.Reason = one.Rejected
		case len(one.Ran) > 0 && one.Stage == rank.StageBroken:
			one.Reason = one.Ran[0].broken()
		}
		if one.Judgement = c.judgements[i]; one.Judgement != nil {
			if one.Judgement.Score == nil {
				one.Missing = cmp.Or(one.Missing, one.Judgement.Reason)
			}
		}
		rep.Candidates++
		rep.Empty += countIf(c.patches[i] == "")
		rep.Scored += countIf(cs[i].Score != nil)
		rep.Tested += countIf(cs[i].Tests != nil)
		rep.Truth += countIf(e.Solved != nil)
		t.Candidates = append(t.Candidates, one)
	}
	if w := c.choice.Winner; w >= 0 {
		id := cs[w].ID
		t.Chosen, t.Reason, t.Stage, t.Agree = &id, t.Candidates[w].Reason, c.choice.Decisive, c.choice.Agree
		rep.Chosen++
		if solved := c.set.Entries[w].Solved; solved != nil && *solved {
			rep.ChosenSolved++
		}
	}
	for _, b := range c.baselines {
		t.Scripts = append(t.Scripts, ScriptReport{
			Name: b.Script.Name, Kind: b.Script.Kind, Command: b.Script.Command, Kept: len(b.Kept), Dropped: b.Dropped,
			Problem: b.Problem,
		})
	}
	rep.Results = append(rep.Results, t)
}

// note adds notes about the scores as a whole, and about candidates without one.
func (rep *Report) note() {
	samples, bounds, missing := 0, 0, 0
	first := ""
	for _, t := range rep.Results {
		for _, c := range t.Candidates {
			if j := c.Judgement; j != nil && j.Score != nil {
				samples += countIf(j.Method == judge.BySamples)
				bounds += countIf(j.Bound != judge.Exact)
			}
			if missing += countIf(c.Missing != ""); c.Missing != "" {
				first = cmp.Or(first, fmt.Sprintf("%s #%d: %s", t.Task, c.Attempt, c.Missing))
			}
		}
	}
	add := func(n int, what string) {
		if n > 0 {
			rep.Notes = append(rep.Notes, fmt.Sprintf("%s: %d", what, n))
		}
	}
	add(samples, "scores that are shares of sampled answers, because the judge's endpoint gives no logprobs")
	add(bounds, "scores that are bounds, because the endpoint lists only one of YES and NO among its most probable tokens")
	add(missing, "candidates that were not judged or tested (such as "+first+")")
}

// noteLacks notes how many tasks with several patches lack scores or test results that the verifier goes by.
func (rep *Report) noteLacks() {
	compared, unscored, untested := 0, 0, 0
	for _, t := range rep.Results {
		distinct, scored, tested := 0, false, false
		for _, c := range t.Candidates {
			distinct += countIf(c.Patch != "" && c.SameAs == nil)
			scored = scored || c.Judgement != nil && c.Judgement.Score != nil
			tested = tested || c.Tests != nil
		}
		if distinct > 1 {
			compared++
			unscored += countIf(!scored)
			untested += countIf(!tested)
		}
	}
	add := func(uses bool, n int, what string) {
		if !uses || n == 0 {
			return
		}
		rep.Notes = append(rep.Notes, fmt.Sprintf("tasks with several patches that were compared without %s: %d of %d", what,
			n, compared))
		if n == compared {
			rep.Lacks = append(rep.Lacks, what)
		}
	}
	add(rep.Verifier.Judges(), unscored, "scores")
	add(rep.Verifier.Tests(), untested, "test results")
}

func countIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ran returns the results of the scripts on a patch, in the order of the scripts: regression tests come first.
func (c *contest) ran(i int) (ran []ScriptResult) {
	for n, result := range c.results[c.patches[i]] {
		b := c.baselines[n]
		if result == nil || b.Problem != "" {
			continue
		}
		s := ScriptResult{Kind: b.Script.Kind, Kept: len(b.Kept), Passed: len(result.Passed)}
		for _, name := range b.Kept {
			if _, passed := slices.BinarySearch(result.Passed, name); !passed && len(s.Failed) < mostFailed {
				s.Failed = append(s.Failed, name)
			}
		}
		ran = append(ran, s)
	}
	return ran
}

// broken says which tests a patch breaks.
func (s ScriptResult) broken() string {
	text := strings.Join(s.Failed[:min(3, len(s.Failed))], ", ")
	if more := s.Kept - s.Passed - 3; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("breaks %s: %d of %d regression tests pass", text, s.Passed, s.Kept)
}

// rejected returns why a patch does not count.
func (c *contest) rejected(i int) string {
	for _, result := range c.results[c.patches[i]] {
		if result != nil && result.Rejected != "" {
			return result.Rejected
		}
	}
	return ""
}

// writePreds writes the choice as predictions for the official harness.
func (r *Ranking) writePreds() error {
	all := map[string]harness.Prediction{}
	for _, c := range r.contests {
		if c.choice.Winner < 0 {
			continue
		}
		e := c.set.Entries[c.choice.Winner]
		patch, err := e.ReadPatch()
		if err != nil {
			return err
		}
		text := string(patch)
		all[c.set.Task] = harness.Prediction{InstanceID: c.set.Task, Model: cmp.Or(e.Model, r.Source.model()), Patch: &text}
	}
	return disk.WriteJSON(r.Store.Path(PredsFile), all)
}
