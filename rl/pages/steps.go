package pages

import (
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"deepswe/agent/cli"
	"deepswe/agent/trajectory"
	"deepswe/rl"
	"deepswe/verify/plot"
)

// message is a message, as it is shown.
type message struct{ Role, Text string }

// step is a reply of the model, with its calls and what they gave.
type step struct {
	Number  int
	Thought string
	Calls   []shownCall
	// Heard are messages that answer no call.
	Heard   []message
	Problem string
	// Read and Written are tokens, Model and Tools seconds.
	Read, Written int
	Model, Tools  float64
	// Grown is what the edits up to here have changed, Lines the number of its lines.
	Grown string
	Lines int
	Class string // of its tokens
	// Until is the address of the patch up to this step, if there is one.
	Until string
	turn
}

// shownCall is a call with its result.
type shownCall struct {
	Name, Title string
	Args        []message // names and values that no diff shows
	Edit        *change
	Output      string
	Failed      string // how, in words
	Seconds     float64
}

// Diff is the edit of the call as a diff; nil if there is none to show.
func (c shownCall) Diff() *fileDiff {
	if c.Edit == nil || c.Edit.Undo {
		return nil
	}
	d := c.Edit.diff()
	return &d
}

// Title is the step in a line.
func (s *step) Title() string {
	var titles []string
	for _, c := range s.Calls {
		titles = append(titles, c.Title)
	}
	if len(titles) == 0 {
		if said := strings.TrimSpace(s.Problem + " " + s.Thought); said != "" || len(s.Tokens) == 0 {
			return firstLine(said)
		}
		return cli.Plural(len(s.Tokens), "token")
	}
	return strings.Join(titles, "; ")
}

// Bad reports whether a call failed, or the reply had no valid one.
func (s *step) Bad() bool {
	return s.Problem != "" || slices.ContainsFunc(s.Calls, func(c shownCall) bool { return c.Failed != "" })
}

// Edits reports whether the step changes a file.
func (s *step) Edits() bool {
	return slices.ContainsFunc(s.Calls, func(c shownCall) bool { return c.Edit != nil && c.Failed == "" })
}

// Anchor is the address of the step on its page.
func (s *step) Anchor() string { return "s" + strconv.Itoa(s.Number) }

// shorten cuts the texts of all steps to about most bytes.
func (p *rolloutPage) shorten(most int) {
	for _, s := range p.Steps {
		s.Thought = shortened(s.Thought, most)
		for k := range s.Calls {
			c := &s.Calls[k]
			c.Output = shortened(c.Output, most)
			for n := range c.Args {
				c.Args[n].Text = shortened(c.Args[n].Text, most)
			}
		}
		for k := range s.Heard {
			s.Heard[k].Text = shortened(s.Heard[k].Text, most)
		}
	}
}

// all is everything that the step says, for a search.
func (s *step) all() string {
	var b strings.Builder
	b.WriteString(s.Thought)
	for _, c := range s.Calls {
		b.WriteString("\n" + c.Title + "\n" + c.Output)
		for _, a := range c.Args {
			b.WriteString("\n" + a.Text)
		}
	}
	for _, m := range s.Heard {
		b.WriteString("\n" + m.Text)
	}
	return b.String()
}

// stepsOf returns the steps of a recording.
func stepsOf(rec *trajectory.Recording) []*step {
	var steps []*step
	patch := grown{}
	for i, t := range rec.Turns {
		m := t.Reply.Message
		s := &step{
			Number: i + 1, Thought: plain(thought(m)), Problem: plain(t.Reply.Problem), Read: t.Reply.Usage.Prompt,
			Written: t.Reply.Usage.Completion, Model: t.Reply.Elapsed.Seconds(),
		}
		results := map[string]trajectory.Result{}
		for _, o := range t.Observations {
			for _, r := range o.Results {
				if r.Output == "" && len(o.Results) == 1 {
					r.Output = o.Message.Content
				}
				results[r.CallID] = r
			}
			if len(o.Results) == 0 {
				s.Heard = append(s.Heard, message{o.Message.Role, plain(o.Message.Content)})
			}
		}
		for _, c := range t.Reply.Calls {
			shown := callOf(c, results[c.ID])
			s.Tools += shown.Seconds
			s.Calls = append(s.Calls, shown)
		}
		s.addTo(&patch)
		if added, removed, files := patch.size(); files > 0 {
			s.Lines = added + removed
			s.Grown = fmt.Sprintf("+%d −%d in %s so far", added, removed, cli.Plural(files, "file"))
		}
		steps = append(steps, s)
	}
	return steps
}

// thought is what a message says besides its calls.
func thought(m trajectory.Message) string {
	text := m.Content
	if i := strings.Index(text, "<function="); i >= 0 {
		text = text[:i]
	}
	return strings.TrimSpace(m.Reasoning + "\n\n" + text)
}

// callOf describes a call and its result.
func callOf(c trajectory.Call, r trajectory.Result) shownCall {
	s := shownCall{
		Name: plain(c.Name), Output: plain(r.Output), Seconds: r.Elapsed.Seconds(), Edit: changeOf(c),
	}
	left := maps.Clone(c.Args)
	path := c.Args["path"]
	if s.Edit != nil {
		for _, name := range []string{"command", "path", "old_str", "new_str", "file_text"} {
			delete(left, name)
		}
	}
	what := path
	for _, name := range []string{"cmd", "search_term"} {
		if c.Args[name] != "" {
			what = strings.TrimSpace(c.Args[name] + " " + path)
		}
	}
	s.Title = firstLine(plain(strings.Join(strings.Fields(c.Name+" "+c.Args["command"]+" "+what), " ")))
	for _, name := range slices.Sorted(maps.Keys(left)) {
		s.Args = append(s.Args, message{plain(name), plain(left[name])})
	}
	switch {
	case r.TimedOut:
		s.Failed = "timed out"
	case r.OutOfMemory:
		s.Failed = "out of memory"
	case r.OutOfDisk:
		s.Failed = "out of disk"
	case r.ExitCode != nil && *r.ExitCode != 0:
		s.Failed = fmt.Sprintf("exit code %d", *r.ExitCode)
	case r.Failed:
		s.Failed = "failed"
	}
	return s
}

// stepsOfMessages returns the conversation of a training rollout that has no recording.
func stepsOfMessages(r rl.Rollout) (opening []message, steps []*step) {
	for _, raw := range r.Messages {
		var m trajectory.Message
		if json.Unmarshal(raw, &m) != nil { // other harnesses write other types
			continue
		}
		switch {
		case m.Role == trajectory.RoleAssistant:
			text := m.Content
			for _, c := range m.ToolCalls {
				text += "\n" + c.Name + " " + c.Arguments
			}
			said := plain(strings.TrimSpace(m.Reasoning + "\n\n" + text))
			steps = append(steps, &step{Number: len(steps) + 1, Thought: said})
		case len(steps) == 0:
			opening = append(opening, message{m.Role, plain(m.Content)})
		default:
			s := steps[len(steps)-1]
			s.Heard = append(s.Heard, message{m.Role, plain(m.Content)})
		}
	}
	return opening, steps
}

// timeOfSteps draws the model's and the tools' time of each step, or of several together where there are many, and how
// the context fills up and the patch grows. A bar leads to its step.
func timeOfSteps(steps []*step) template.HTML {
	const width, height, mostBars = 1160.0, 120.0, 400
	if several := (len(steps) + mostBars - 1) / mostBars; several > 1 {
		var bars []*step
		for some := range slices.Chunk(steps, several) {
			sum := *some[len(some)-1]
			sum.Number, sum.Model, sum.Tools = some[0].Number, 0, 0
			for _, s := range some {
				sum.Model, sum.Tools = sum.Model+s.Model, sum.Tools+s.Tools
			}
			bars = append(bars, &sum)
		}
		steps = bars
	}
	longest, fullest, largest := 0.0, 0, 0
	for _, s := range steps {
		longest, fullest, largest = max(longest, s.Model+s.Tools), max(fullest, s.Read+s.Written), max(largest, s.Lines)
	}
	if len(steps) < 2 || longest == 0 && fullest == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<figure><figcaption>Time and context of each step</figcaption><svg class="steps" `+
		`viewBox="0 0 %g %g" preserveAspectRatio="none" role="img" aria-label="Time and context of each step">`,
		width, height)
	w := width / float64(len(steps))
	var context, lines []string
	point := func(x float64, n, most int) string {
		return fmt.Sprintf("%.1f,%.1f", x+w/2, height-height*.9*float64(n)/float64(max(1, most)))
	}
	for i, s := range steps {
		x := w * float64(i)
		bar := func(class string, from, to float64) {
			fmt.Fprintf(&b, `<rect class="dot %s" x="%.2f" y="%.1f" width="%.2f" height="%.1f"/>`, class, x,
				height-height*to*.9, max(w*.85, .5), height*.9*(to-from))
		}
		fmt.Fprintf(&b, `<a href="#%s"><title>step %d: model %s, tools %s, %s tokens</title>`, s.Anchor(), s.Number,
			plot.Duration(s.Model), plot.Duration(s.Tools), plot.Count(float64(s.Read+s.Written)))
		if longest > 0 {
			share := s.Model / longest
			bar("c0", 0, share)
			bar("c2", share, share+s.Tools/longest)
		}
		fmt.Fprintf(&b, `<rect class="touch" x="%.2f" y="0" width="%.2f" height="%g"/></a>`, x, w, height)
		context = append(context, point(x, s.Read+s.Written, fullest))
		lines = append(lines, point(x, s.Lines, largest))
	}
	legend := func(color, text string) { fmt.Fprintf(&b, `<span><i class="%s"></i>%s</span>`, color, text) }
	fmt.Fprintf(&b, `<polyline class="line c4" points="%s"/><polyline class="line c3" points="%s"/></svg>`+
		`<div class="legend">`, strings.Join(context, " "), strings.Join(lines, " "))
	legend("c0", "model")
	legend("c2", "tools; with the model up to "+plot.Duration(longest))
	legend("c4", "context, up to "+plot.Count(float64(fullest))+" tokens")
	if largest > 0 {
		legend("c3", "the patch, up to "+cli.Plural(largest, "changed line"))
	}
	b.WriteString(`</div></figure>`)
	return template.HTML(b.String())
}

// token is a sampled token.
type token struct {
	ID      int32
	Logprob float64
	// Class is the CSS class of the token's probability: from p0, near certain, to p4, very unlikely.
	Class string
}

// tokenTitle is what a token's tooltip says.
func tokenTitle(t token) string {
	return fmt.Sprintf("token %d, log-probability %.4g", t.ID, t.Logprob)
}

// turn is a call of the policy, as token IDs.
type turn struct {
	// NewTokens is the number of new tokens in the prompt. Split is set if the prompt does not extend the previous
	// turn.
	NewTokens int
	Split     bool
	Tokens    []token
	Version   string
	Mean      float64
}

// addTokens adds the tokens of a training rollout to its steps.
func (p *rolloutPage) addTokens(m member) {
	for i, t := range turnsOf(m.Rollout) {
		if i == len(p.Steps) {
			p.Steps = append(p.Steps, &step{Number: i + 1})
		}
		p.Steps[i].turn, p.Steps[i].Class = t, m.tokenClass()
	}
}

// turnsOf returns the tokens of a rollout's turns.
func turnsOf(r rl.Rollout) []turn {
	turns := make([]turn, 0, len(r.Turns))
	var last trajectory.Sequence
	for i, s := range r.Turns {
		shared := last.Shared(s.PromptIDs)
		t := turn{NewTokens: len(s.PromptIDs) - shared, Split: i > 0 && shared < len(last)}
		last = last.Follow(&s)
		if s.PolicyVersion != nil {
			t.Version = strconv.FormatInt(*s.PolicyVersion, 10)
		}
		for k, id := range s.CompletionIDs {
			x := token{ID: id, Class: "p0"}
			if k < len(s.Logprobs) {
				x.Logprob = s.Logprobs[k]
				t.Mean += x.Logprob / float64(len(s.CompletionIDs))
				x.Class = fmt.Sprintf("p%d", int(min(4, math.Sqrt(max(0, -x.Logprob))*2)))
			}
			t.Tokens = append(t.Tokens, x)
		}
		turns = append(turns, t)
	}
	return turns
}
