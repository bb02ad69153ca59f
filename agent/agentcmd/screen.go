package agentcmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/repo"
	"deepswe/tools"
)

// screen shows a rollout to people, on standard error: a line for every finished step and, on a terminal, a live line
// below them about the current one. The patch goes to standard output.
type screen struct {
	*cli.Screen // its lock guards what follows
	out         io.Writer
	shared      bool // out is for people, too
	verbose     bool
	styles      styles
	began       time.Time

	dir     string // of the repository in the sandbox
	step    int
	max     int
	doing   string
	since   time.Time
	tokens  int         // of the conversation so far
	context int         // maximum number of tokens; 0 if it is not known
	differ  int         // calls with another result than recorded
	rowed   int         // the step whose number is on the screen already
	said    string      // the end of the reply so far
	setup   int         // the step of the set-up that is on the screen
	asked   *tools.Call // the last call that the user was asked about, which has shown its changes
	race    []string    // the progress of each of several attempts; empty for those that have ended
}

type styles struct{ dim, good, bad, name lipgloss.Style }

func newStyles(r *lipgloss.Renderer) styles {
	return styles{
		dim: r.NewStyle().Faint(true), name: r.NewStyle().Bold(true),
		good: r.NewStyle().Foreground(lipgloss.Color("2")), bad: r.NewStyle().Foreground(lipgloss.Color("1")),
	}
}

func newScreen(out io.Writer, shared bool, on *cli.Screen, st styles) *screen {
	s := &screen{Screen: on, out: out, shared: shared, styles: st, began: time.Now()}
	s.Show(s.draw)
	return s
}

// draw returns the live lines.
func (s *screen) draw(width int) []string {
	if len(s.race) > 0 {
		return s.racers(width)
	}
	if s.doing == "" {
		return nil
	}
	parts := []string{cli.Clock(time.Since(s.began))}
	if s.step > 0 {
		parts = append(parts, fmt.Sprintf("step %d/%d", s.step, s.max))
	}
	switch {
	case width < 60:
	case s.context > 0: // from the start: how full it is
		parts = append(parts, fmt.Sprintf("%s of %s tokens", cli.Count(s.tokens), cli.Count(s.context)))
	case s.tokens > 0:
		parts = append(parts, cli.Count(s.tokens)+" tokens")
	}
	text := strings.Join(append(parts, s.doing), "  ")
	if words := cli.LastLine(s.said); words != "" {
		text += "  " + cli.CutLeft(words, width-3-ansi.StringWidth(text))
	} else if d := time.Since(s.since); d >= time.Second && s.step > 0 {
		took := "  " + cli.Clock(d)
		text = cli.Cut(text, width-1-len(took)) + took
	}
	return []string{s.styles.dim.Render(cli.Cut(text, width-1))}
}

func (s *screen) now(doing string) {
	s.doing, s.since = doing, time.Now()
	s.Redraw()
}

func (s *screen) show(happened any) {
	s.Lock()
	defer s.Unlock()
	switch h := happened.(type) {
	case started:
		s.start(h)
	case note:
		s.now(string(h))
	case remark:
		s.Line(s.styles.dim.Render(cli.Plain(strings.ReplaceAll(string(h), "\n", " "))))
	case env.Progress:
		switch {
		case !h.Done:
			s.doing = cli.Plain(cli.Pulling(h))
		case h.Err == nil:
			s.Line(s.styles.dim.Render(cli.Plain(cli.Pulling(h))))
		}
	case env.SetupProgress:
		s.settingUp(h)
	case installed:
		s.installed(h)
	case attempt.Phase:
		s.now(phaseWords(h))
	case ready:
		s.dir = string(h)
	case agent.Event:
		s.event(h)
	case checked:
		s.showCheck(h)
	case proposal:
		var text strings.Builder
		showDraft(&text, h.Draft)
		for line := range strings.Lines(text.String()) {
			s.Line(strings.TrimSuffix(line, "\n"))
		}
	case question:
		s.ask(h)
	case raced:
		s.raced(h)
	}
}

func (s *screen) start(b started) {
	s.max, s.context = b.MaxSteps, b.Context
	if b.Demo && b.Recorded {
		s.Line(s.styles.dim.Render("The answers are recorded; for a live model set DEEPSWE_BASE_URL, without --demo."))
	}
	s.Line(fmt.Sprintf("%s  %s in %s", s.styles.name.Render(cli.Plain(b.Task)), cli.Plain(b.Model), b.Sandbox))
	if b.Resumed {
		s.Line(s.styles.dim.Render("going on with " + cli.Plain(b.Run)))
	}
	for _, due := range b.Due {
		s.Line(s.styles.bad.Render("not installed: ") + cli.Plain(due.line()))
		s.Line("  to fix: " + cli.Plain(due.Fix))
	}
	if b.Folder != "" {
		s.Line(s.styles.dim.Render("in the folder " + cli.Plain(b.Folder)))
	}
	if len(b.Rules) > 0 {
		s.Line(s.styles.dim.Render(cli.Cut("project rules: "+cli.Plain(strings.Join(b.Rules, ", ")), s.Width()-1)))
	}
	s.omissions("not copied: ", b.NotCopied)
}

// manyOmissions is how many files are named one by one.
const manyOmissions = 5

// omissions prints the files that are left out.
func (s *screen) omissions(what string, all []repo.Omission) {
	for i, m := range all {
		if i == manyOmissions && len(all) > i+1 {
			s.Line(s.styles.bad.Render(what) + fmt.Sprintf("%d more files", len(all)-i))
			return
		}
		s.Line(s.styles.bad.Render(what) + cli.Plain(m.Path) + ": " + cli.Plain(m.Reason))
	}
}

// replayed shows the replay of a recorded step: a line if the result differs, otherwise nothing.
func (s *screen) replayed(e agent.Event) {
	switch e.Kind {
	case agent.EventReply:
		s.step, s.tokens = e.Step, e.Usage.Prompt+e.Usage.Completion
	case agent.EventCall:
		s.now("again: " + describe(e.Call, s.dir))
	case agent.EventDifference:
		s.differ++
		s.Line(s.row(e.Step, s.styles.bad.Render("!"),
			"another result than recorded: "+cli.Cut(describe(e.Call, s.dir), s.Width()-38)))
	}
}

func (s *screen) event(e agent.Event) {
	if e.Replayed {
		s.replayed(e)
		return
	}
	switch e.Kind {
	case agent.EventResumed:
		text := cli.Plural(e.Step, "recorded step") + " repeated, all with the recorded results"
		if s.differ > 0 {
			text = fmt.Sprintf("%s repeated; the results of %s differ from the recorded ones, which the model goes by",
				cli.Plural(e.Step, "recorded step"), cli.Plural(s.differ, "call"))
		}
		s.Line(s.styles.dim.Render(cli.Cut(text, s.Width()-1)))
	case agent.EventStep:
		s.step, s.said = e.Step, ""
		s.now("thinking")
	case agent.EventText:
		s.said += e.Text
		s.said = s.said[max(0, len(s.said)-1000):]
	case agent.EventReply:
		s.said = ""
		s.tokens = e.Usage.Prompt + e.Usage.Completion
		if s.verbose {
			s.Line(s.row(e.Step, " ", ""))
			s.full(e.Text)
		} else if text := spoken(e.Text); text != "" {
			s.Line(s.row(e.Step, " ", s.styles.dim.Render(cli.Cut(text, s.Width()-7))))
		}
	case agent.EventCall:
		s.now(describe(e.Call, s.dir))
	case agent.EventResult:
		s.result(e)
	case agent.EventProblem, agent.EventNotice:
		s.Line(s.row(e.Step, s.styles.bad.Render("!"), "told the model: "+cli.FirstLine(e.Text, s.Width()-24)))
	case agent.EventCompaction:
		s.Line(s.row(e.Step, " ", s.styles.dim.Render(cli.Cut(e.Text, s.Width()-7))))
	case agent.EventFallback, // which is logged, with the reason
		agent.EventStart, agent.EventDifference, agent.EventStop:
	}
}

func (s *screen) result(e agent.Event) {
	mark := s.styles.good.Render("+")
	took := ""
	if e.Elapsed >= 100*time.Millisecond {
		took = fmt.Sprintf("%.1fs", e.Elapsed.Seconds())
	}
	if e.Result.ExitCode != nil && *e.Result.ExitCode != 0 {
		took = strings.TrimSpace(fmt.Sprintf("exit %d  %s", *e.Result.ExitCode, took))
	}
	if e.Result.Failed {
		mark = s.styles.bad.Render("-")
	}
	text := cli.Cut(describe(e.Call, s.dir), max(20, s.Width()-9-len(took)))
	if took != "" {
		text += "  " + s.styles.dim.Render(took)
	}
	s.Line(s.row(e.Step, mark, text))
	s.edited(e)
	if s.verbose {
		s.full(e.Result.Output)
	}
	s.doing = ""
}

// row is a line of a step; only the first one of a step carries its number.
func (s *screen) row(step int, mark, text string) string {
	number := "   "
	if step != s.rowed {
		number, s.rowed = s.styles.dim.Render(fmt.Sprintf("%3d", step)), step
	}
	return fmt.Sprintf("%s %s %s", number, mark, text)
}

func (s *screen) showCheck(c checked) {
	mark := s.styles.good.Render("passes")
	if !c.Passed {
		mark = s.styles.bad.Render("fails")
	}
	s.Line("")
	s.Line(fmt.Sprintf("%s in a fresh sandbox, with the patch alone: %s", c.Command, mark))
	for l := range strings.Lines(c.Output) {
		s.Line("  " + cli.Cut(cli.Plain(strings.TrimRight(l, "\r\n")), s.Width()-3))
	}
}

func (s *screen) finish(o outcome) error {
	// The result goes to standard output, so an error of the screen does not matter.
	_ = s.Close(false)
	s.Lock()
	defer s.Unlock()
	if o.Run == "" {
		return nil // nothing began, and main prints why
	}
	var lost error
	if s.shared && len(o.diff) > 0 && !o.shown { // for people who watch both streams, the summary comes last
		s.Line("")
		_, lost = io.WriteString(s.out, s.patch(o.diff))
	}
	s.Line("")
	if o.Status == string(agent.Submitted) && o.Patch != nil && o.Error == "" { // what was reached comes first
		s.sentence(o)
		o.Detail = ""
	}
	s.Line(cli.Fit(s.Screen, s.verdict(o)))
	if o.Detail != "" {
		s.Line(o.Detail)
	}
	s.chosen(o.Choice)
	s.answer(o.Answer)
	if where := deliveredWords(o.Applied, o.Branch); where != "" {
		s.Line(where)
	}
	if o.PullRequest != nil {
		s.labelled("pull", o.PullRequest.URL)
	}
	s.omissions("not in the patch: ", o.Omitted)
	for i, path := range []*string{o.Patch, o.Trajectory} {
		if path != nil {
			s.labelled([]string{"patch", "trajectory"}[i], *path)
		}
	}
	for i, command := range o.Next {
		s.labelled([]string{"next", "or"}[min(i, 1)], command)
	}
	if len(o.diff) == 0 || s.shared {
		return lost
	}
	return cli.WriteText(s.out, o.diff)
}

// labelled shows a text after a label.
func (s *screen) labelled(label, text string) {
	s.Line(s.styles.dim.Render(fmt.Sprintf("%-11s", label)) + text)
}

// sentence shows what was reached, and the tests that prove it.
func (s *screen) sentence(o outcome) {
	style := s.styles.name
	switch {
	case o.Test == nil:
	case o.Test.Verdict == attempt.Verified:
		style = s.styles.good
	case o.Test.Verdict == attempt.Broken:
		style = s.styles.bad
	}
	lines := []string{o.Detail}
	if s.Live() {
		lines = cli.Wrap(o.Detail, s.Width()-1)
	}
	for _, l := range lines {
		if l != "" {
			s.Line(style.Render(cli.Plain(l)))
		}
	}
}

// verdict returns the line about how the run ended.
func (s *screen) verdict(o outcome) string {
	mark, what := s.styles.bad, "no patch"
	switch {
	case o.ExitCode == cli.ExitDone:
		mark, what = s.styles.good, "solved"
	case o.Patch != nil && o.Status == string(agent.Submitted):
		what = "patch saved"
	case o.Patch != nil:
		what = "patch so far saved"
	case len(o.diff) > 0:
		what = "patch not saved"
	}
	text := fmt.Sprintf("%s (%s) after %s, %s", mark.Render(what), strings.ReplaceAll(o.Status, "_", " "),
		cli.Plural(o.Steps, "step"), cli.Clock(time.Since(s.began)))
	if len(o.diff) > 0 {
		text += ", " + size(o.diff)
	}
	if o.Tokens.Completion > 0 {
		text += fmt.Sprintf(", %s tokens read, %s tokens written", cli.Count(o.Tokens.Prompt), cli.Count(o.Tokens.Completion))
	}
	if o.Cost != nil {
		text += fmt.Sprintf(", cost %.2f", *o.Cost)
	}
	return text
}

// answerLines is the maximum number of lines of the agent's summary to show; the trajectory contains all of it.
const answerLines = 10

// answer shows the agent's summary of its work.
func (s *screen) answer(text string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, l := range lines[:min(len(lines), answerLines)] {
		if l = cli.Plain(strings.TrimSpace(l)); l != "" || i > 0 {
			s.Line(strings.TrimRight("  "+cli.Cut(l, s.Width()-3), " "))
		}
	}
}
