package pages

import (
	"cmp"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"deepswe/agent/attempt"
	"deepswe/agent/run"
	"deepswe/verify/rank/ranking"
	"deepswe/verify/swe"
)

// row is an attempt in a table.
type row struct {
	run.Job
	Dir     string
	Verdict verdict
	Stop    string
	Status  string
	Steps   int
	// Read and Written count the tokens of the prompts and of the replies.
	Read, Written int
	Seconds       float64
	Files         int
	Bytes         int64 // of the patch
	Context       int   // 0 for the run's own
	Suspicious    []string
	Err           string
	// Ranked is what a ranking says about the attempt; nil without one. Lost is set if its rollout is not there.
	Ranked       *ranking.CandidateReport
	Chosen, Lost bool
}

// verdict is how an attempt ended, in a word.
type verdict string

// The verdicts.
const (
	solved   verdict = "solved"
	unsolved verdict = "unsolved"
	ungraded verdict = "ungraded"
	failed   verdict = "failed" // an infrastructure failure
	playing  verdict = "playing"
	broken   verdict = "unfinished"
)

// rowOf describes an attempt that has ended.
func rowOf(o run.Outcome, dir string) row {
	d := swe.DetailOf(o)
	r := row{
		Job: o.Job, Dir: dir, Stop: string(o.StopReason), Status: string(d.Status), Steps: d.Steps, Read: d.Tokens.Prompt,
		Written: d.Tokens.Completion, Seconds: o.Times.Total, Files: d.Files, Context: swe.ContextOf(o.Job), Err: o.Err,
	}
	for _, s := range d.Suspicious {
		r.Suspicious = append(r.Suspicious, string(s))
	}
	switch {
	case o.Failed():
		r.Verdict = failed
	case o.Reward == nil:
		r.Verdict = ungraded
	case swe.Solved(o):
		r.Verdict = solved
	default:
		r.Verdict = unsolved
	}
	if info, err := os.Stat(filepath.Join(dir, attempt.PatchFile)); err == nil {
		r.Bytes = info.Size()
	}
	if d.Steps == 0 {
		r.summarise() // a run of solve has no details in its events
	}
	return r
}

// openRow describes an attempt without an outcome.
func openRow(dir string, running bool) row {
	group, err := url.PathUnescape(filepath.Base(filepath.Dir(dir)))
	if err != nil {
		group = filepath.Base(filepath.Dir(dir))
	}
	index, _ := strconv.Atoi(filepath.Base(dir))
	task, _, _ := strings.Cut(group, "@context=")
	r := row{Job: run.Job{Task: task, Group: group, Index: index}, Dir: dir, Verdict: broken}
	if running {
		r.Verdict = playing
	}
	r.summarise()
	return r
}

// summarise adds what the attempt's own report says.
func (r *row) summarise() {
	s, err := attempt.ReadSummary(r.Dir)
	if err != nil {
		return
	}
	r.Stop, r.Steps, r.Files = cmp.Or(r.Stop, string(s.StopReason)), s.Steps, len(s.Files)
	r.Read, r.Written = s.Tokens.Prompt, s.Tokens.Completion
	r.Seconds = cmp.Or(r.Seconds, s.Seconds.Start+s.Seconds.Model+s.Seconds.Tools+s.Seconds.Patch)
	if r.Verdict == broken || r.Verdict == playing {
		r.Verdict = ungraded
	}
}

// Link is the address of the attempt's page below the run's, or of its task's.
func (r row) Link() string {
	if r.Lost {
		return r.TaskLink()
	}
	return "rollout?" + url.Values{"group": {r.Group}, "attempt": {strconv.Itoa(r.Index)}}.Encode()
}

// TaskLink is the address of the task's page below the run's.
func (r row) TaskLink() string { return "task?" + url.Values{"name": {r.Task}}.Encode() }

// Score is the judge's, from 0 to 1; nil without one.
func (r row) Score() *float64 {
	if r.Ranked == nil || r.Ranked.Judgement == nil {
		return nil
	}
	return r.Ranked.Judgement.Score
}

// Tokens is the number of all tokens.
func (r row) Tokens() int { return r.Read + r.Written }

// Reason is why the attempt ended, for people.
func (r row) Reason() string {
	return phrase(cmp.Or(r.Err, r.Stop, r.Status))
}

// fields are the values by which the row is filtered and sorted.
func (r row) fields() fields {
	repo, _, _ := strings.Cut(r.Task, "-")
	chosen, score := "", -1.
	if r.Chosen {
		chosen = "yes"
	}
	if s := r.Score(); s != nil {
		score = *s
	}
	return fields{
		"": r.Task, "task": r.Task, "repo": strings.ReplaceAll(repo, "__", "/") + " " + repo,
		"stop": cmp.Or(r.Stop, "error"), "status": r.Status, "is": string(r.Verdict),
		"suspicious": strings.Join(r.Suspicious, " "), "error": r.Err, "attempt": r.Index, "steps": r.Steps,
		"tokens": r.Tokens(), "seconds": r.Seconds, "files": r.Files, "patch": int(r.Bytes), "context": r.Context,
		"chosen": chosen, "score": score,
	}
}

// totals are the figures of a run.
type totals struct {
	Tasks, Attempts, Failed, Graded, Solved, Suspicious, Open int
	Read, Written                                             int
	Seconds                                                   float64
	Stops                                                     map[string]int
	// Rate is pass@1 over the tasks, Most the estimate with as many attempts as every task has; of the run's own
	// context.
	Rate, Most swe.Estimate
}

// Tokens is the number of all tokens.
func (t totals) Tokens() int { return t.Read + t.Written }

func total(rows []row) totals {
	t := totals{Attempts: len(rows), Stops: map[string]int{}}
	at := map[string]int{}
	var tasks []swe.Attempts
	for _, r := range rows {
		if _, ok := at[r.Task]; !ok {
			at[r.Task] = len(tasks)
			tasks = append(tasks, swe.Attempts{Task: r.Task})
		}
		t.Read, t.Written, t.Seconds = t.Read+r.Read, t.Written+r.Written, t.Seconds+r.Seconds
		if len(r.Suspicious) > 0 {
			t.Suspicious++
		}
		switch r.Verdict {
		case playing, broken:
			t.Open++
			continue
		case failed:
			t.Failed++
			continue
		}
		t.Stops[cmp.Or(r.Stop, r.Status)]++
		if r.Verdict == ungraded {
			continue
		}
		t.Graded++
		own := &tasks[at[r.Task]]
		if r.Context == 0 {
			own.Made++
		}
		if r.Verdict == solved {
			t.Solved++
			if r.Context == 0 {
				own.Solved++
			}
		}
	}
	t.Tasks = len(tasks)
	least := 0
	for _, a := range tasks {
		if a.Made > 0 && (least == 0 || a.Made < least) {
			least = a.Made
		}
	}
	t.Rate = swe.PassRate(tasks, 1)
	if least > 1 {
		t.Most = swe.PassRate(tasks, least)
	}
	return t
}
