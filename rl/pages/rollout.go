package pages

import (
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/repo"
	"deepswe/verify/plot"
)

// rolloutPage is the data of a rollout's page.
type rolloutPage struct {
	Run   *loaded
	Row   row
	Cards []plot.Card
	// Opening are the messages before the first reply, Steps the replies.
	Opening []message
	Steps   []*step
	// Left is the number of steps that the search leaves out.
	Left     int
	Find     string
	Timeline template.HTML
	Patch    []fileDiff
	Omitted  []repo.Omission
	Evidence *evidence
	// Logs are links to the test logs, Verified is how solve tested the patch.
	Logs     []link
	Verified string
	Answer   string
	Err      string
	// Before and After are the rollouts beside this one.
	Before, After string
	Next          []string
	// Trained is the training rollout with its place in its group; nil for others.
	Trained *member
	Lazy    bool // steps are loaded when they are unfolded
	Base    string
	Names   url.Values // name the rollout in addresses
	// Packed is the name of the rollout in a page that is a file, Parts its steps if they are loaded from there.
	Packed string
	Parts  []string
}

// Load is where a page that has left out a step loads it from; empty if the page has it.
func (p *rolloutPage) Load(s *step) string {
	switch {
	case !p.Lazy:
		return ""
	case p.Packed != "":
		return fmt.Sprintf("#%s.%d:%d", p.Packed, (s.Number-1)/perPart, (s.Number-1)%perPart)
	}
	return fmt.Sprintf("%s&fragment=%d", p.Base, s.Number)
}

// row returns the attempt that a request names.
func (r *loaded) row(req *http.Request) (row, error) {
	v := req.URL.Query()
	for _, x := range r.Rows {
		if x.Group == v.Get("group") && strconv.Itoa(x.Index) == v.Get("attempt") {
			return x, nil
		}
	}
	return row{}, fmt.Errorf("attempt %s of %s: %w", v.Get("attempt"), v.Get("group"), errNotFound)
}

// rollout is the page of an attempt.
func (h *Handler) rollout(r *loaded, req *http.Request) (view, error) {
	if r.Kind == run.Train {
		return h.trainedRollout(r, req)
	}
	x, err := r.row(req)
	if err != nil {
		return view{}, err
	}
	if req.URL.Query().Has("fragment") {
		p, err := h.unfolding(r, x)
		if err != nil {
			return view{}, err
		}
		return p.view(req, nil)
	}
	p, err := rolloutOf(r, x)
	if err != nil {
		return view{}, err
	}
	for i, other := range r.Rows {
		if other.Job != x.Job {
			continue
		}
		if i > 0 {
			p.Before = r.Rows[i-1].Link()
		}
		if i+1 < len(r.Rows) {
			p.After = r.Rows[i+1].Link()
		}
	}
	return p.view(req, []link{{x.Task, x.TaskLink()}, {"#" + strconv.Itoa(x.Index), ""}})
}

// unfolding returns the rollout whose steps are being unfolded, which is read once for all of them until it grows.
func (h *Handler) unfolding(r *loaded, x row) (*rolloutPage, error) {
	key := x.Dir
	if info, err := os.Stat(filepath.Join(x.Dir, attempt.StepsFile)); err == nil {
		key += fmt.Sprint(info.Size(), info.ModTime())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unfolded == nil || h.unfoldedKey != key {
		p, err := rolloutOf(r, x)
		if err != nil {
			return nil, err
		}
		h.unfolded, h.unfoldedKey = p, key
	}
	return h.unfolded, nil
}

// solved is the page of a run of solve with one attempt.
func (h *Handler) solved(r *loaded, req *http.Request) (view, error) {
	p, err := rolloutOf(r, r.Rows[0])
	if err != nil {
		return view{}, err
	}
	p.Next = nextCommands(r)
	for _, n := range r.notes {
		if n.Event == "verified" {
			var v struct{ Text string }
			_ = json.Unmarshal(n.Data, &v) // written by solve
			p.Verified = plain(v.Text)
		}
	}
	return p.view(req, nil)
}

// lazily is the most steps that a page holds. With more, it leaves them out until they are unfolded.
const lazily = 150

// view returns the page: all of it, one step for a page that has left it out, the patch until a step, or the steps with
// a text.
func (p *rolloutPage) view(req *http.Request, crumbs []link) (view, error) {
	v := view{template: "rollout", Title: label(p.Row), Crumbs: crumbs, Data: p}
	names := url.Values{"group": {p.Row.Group}, "attempt": {strconv.Itoa(p.Row.Index)}}
	if step := req.URL.Query().Get("step"); step != "" {
		names.Set("step", step)
	}
	base := p.Run.Base + "rollout?" + names.Encode()
	until := func(s *step) string {
		if !s.Edits() {
			return ""
		}
		return fmt.Sprintf("%s&fragment=%d&patch", base, s.Number)
	}
	if n, err := strconv.Atoi(req.URL.Query().Get("fragment")); err == nil {
		if n < 1 || n > len(p.Steps) {
			return v, fmt.Errorf("step %d: %w", n, errNotFound)
		}
		if req.URL.Query().Has("patch") {
			v.template, v.Data = "grown", grownIn(p.Steps[:n]).diffs()
			return v, nil
		}
		one := *p.Steps[n-1] // other requests share the page
		one.Until = until(&one)
		v.template, v.Data = "fragment", &one
		return v, nil
	}
	for _, s := range p.Steps {
		s.Until = until(s)
	}
	p.find(req.URL.Query().Get("find"))
	p.Lazy = len(p.Steps) > lazily
	p.Names, p.Base = names, base
	return v, nil
}

// find leaves out the steps that do not contain the text.
func (p *rolloutPage) find(text string) {
	p.Find = text
	if text == "" {
		return
	}
	var left []*step
	for _, s := range p.Steps {
		if strings.Contains(strings.ToLower(s.all()), strings.ToLower(text)) {
			left = append(left, s)
		}
	}
	p.Left = len(p.Steps) - len(left)
	p.Steps = left
}

// rolloutOf reads an attempt from its directory.
func rolloutOf(r *loaded, x row) (*rolloutPage, error) {
	p := &rolloutPage{Run: r, Row: x}
	rec, err := recordingIn(x.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.Err = "The trajectory cannot be read: " + plain(err.Error())
	}
	if rec != nil {
		p.record(rec)
	}
	if s, err := attempt.ReadSummary(x.Dir); err == nil {
		p.Omitted = s.Omitted
	}
	if e, ok := r.evidenceOf(x); ok {
		p.Evidence = &e
	}
	for _, l := range testLogs() {
		if _, err := os.Stat(r.logPath(x, l.To)); err == nil {
			p.Logs = append(p.Logs, l)
		}
	}
	patch, err := patchOf(r, x)
	if err != nil {
		return nil, err
	}
	p.Patch = diffsOf(patch)
	p.Cards = p.cards()
	return p, nil
}

// recordingIn reads the recording in an attempt's directory.
func recordingIn(dir string) (*trajectory.Recording, error) {
	rec, err := trajectory.Open(filepath.Join(dir, attempt.StepsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return trajectory.Open(filepath.Join(dir, attempt.TrajectoryFile))
	}
	return rec, err
}

// patchOf reads an attempt's patch; empty if there is none.
func patchOf(r *loaded, x row) (string, error) {
	dir := x.Dir
	if r.Kind == run.Grade {
		dir = r.gradeDir(x)
	}
	patch, err := os.ReadFile(filepath.Join(dir, attempt.PatchFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(patch), err
}

// record adds the steps of a recording.
func (p *rolloutPage) record(rec *trajectory.Recording) {
	for _, m := range rec.Messages {
		if m.Role == trajectory.RoleAssistant {
			break
		}
		p.Opening = append(p.Opening, message{m.Role, plain(m.Content)})
	}
	p.Steps = stepsOf(rec)
	p.Timeline = timeOfSteps(p.Steps)
	if rec.Stop != nil {
		p.Answer = plain(rec.Stop.Answer)
		if rec.Stop.Error != "" {
			p.Err = plain(rec.Stop.Error)
		}
	}
}

// cards are the figures of a rollout.
func (p *rolloutPage) cards() []plot.Card {
	x := p.Row
	cards := []plot.Card{{Name: "Result", Value: string(x.Verdict), Detail: x.Reason()}}
	if e := p.Evidence; e != nil {
		cards[0].Detail = phrase(e.Status)
	}
	if x.Steps > 0 || len(p.Steps) > 0 {
		cards = append(cards, plot.Card{Name: "Steps", Value: fmt.Sprint(max(x.Steps, len(p.Steps))), Detail: x.Reason()})
	}
	if x.Written > 0 {
		c := plot.Card{Name: "Tokens", Value: count(x.Read + x.Written), Detail: "written"}
		if x.Read > 0 {
			c.Detail = count(x.Written) + " written"
		}
		cards = append(cards, c)
	}
	if x.Seconds > 0 {
		cards = append(cards, plot.Card{Name: "Time", Value: plot.Duration(x.Seconds)})
	}
	added, removed := 0, 0
	for _, d := range p.Patch {
		added, removed = added+d.Added, removed+d.Removed
	}
	if len(p.Patch) > 0 {
		cards = append(cards, plot.Card{
			Name: "Patch", Value: fmt.Sprintf("+%d −%d", added, removed), Detail: "in " + cli.Plural(len(p.Patch), "file"),
		})
	}
	return cards
}

// nextCommands are the commands that go on with a run of solve, to be copied.
func nextCommands(r *loaded) []string {
	if len(r.Rows) == 0 || r.State == stateRunning {
		return nil
	}
	name := r.Path
	if strings.ContainsFunc(name, func(c rune) bool { return strings.ContainsRune(" \t\n'\"$&;()<>|*?[]#~`\\!{}", c) }) {
		name = env.ShellQuote(name)
	}
	var next []string
	if !r.Settings.Demo && slices.ContainsFunc(r.Rows, func(x row) bool { return x.Bytes > 0 }) {
		next = append(next, "deepswe apply "+name, "deepswe branch "+name+" NAME", "deepswe pr "+name)
	}
	if r.Rows[0].Stop != string(trajectory.Submitted) {
		next = append(next, "deepswe solve --resume "+name)
	}
	return append(next, "deepswe solve --continue "+name+` "what to do next"`)
}

// trainedRollout is the page of a training rollout, with its tokens.
func (h *Handler) trainedRollout(r *loaded, req *http.Request) (view, error) {
	v := req.URL.Query()
	step, err := strconv.Atoi(v.Get("step"))
	if err != nil {
		return view{}, fmt.Errorf("step %s: %w", v.Get("step"), errNotFound)
	}
	groups, err := playedIn(r, step)
	if err != nil {
		return view{}, err
	}
	algorithm, _ := algorithmOf(r.Path, step) // the step's page reports the error
	for _, g := range groups {
		if g[0].Group != v.Get("group") {
			continue
		}
		members := groupOf(g, algorithm).Members
		for i, m := range members {
			if strconv.Itoa(m.Attempt) != v.Get("attempt") {
				continue
			}
			p, err := withTokens(r, m)
			if err != nil {
				return view{}, err
			}
			if i > 0 {
				p.Before = members[i-1].Link(step)
			}
			if i+1 < len(members) {
				p.After = members[i+1].Link(step)
			}
			return p.view(req, []link{{fmt.Sprintf("step %d", step), fmt.Sprintf("step/%d", step)}, {label(p.Row), ""}})
		}
	}
	return view{}, fmt.Errorf("rollout %s %s: %w", v.Get("group"), v.Get("attempt"), errNotFound)
}

// withTokens returns the page of a training rollout.
func withTokens(r *loaded, m member) (*rolloutPage, error) {
	job := run.Job{Task: m.Task, Group: m.Group, Index: m.Attempt}
	x := row{
		Job: job, Dir: run.At(r.Path).AttemptDir(job), Stop: string(m.StopReason), Steps: m.Turns, Written: m.Tokens,
		Seconds: m.Times.Total, Err: m.Err,
		Verdict: map[string]verdict{"all": solved, "none": unsolved, "nograde": ungraded}[m.Class],
	}
	p, err := rolloutOf(r, x)
	if err != nil {
		return nil, err
	}
	p.Trained = &m
	if len(p.Steps) == 0 {
		p.Opening, p.Steps = stepsOfMessages(m.Rollout)
	}
	p.addTokens(m)
	return p, nil
}
