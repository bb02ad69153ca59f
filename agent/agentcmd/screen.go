package agentcmd

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/env"
	"deepswe/env/repo"
)

// screen shows a rollout to people, on standard error: one line for every step that is done, and below them, on a
// terminal, one that tells what is going on right now. The patch goes to standard output.
type screen struct {
	out, err io.Writer
	styles   styles
	terminal terminal
	began    time.Time

	mu     sync.Mutex
	dir    string // of the repository in the sandbox
	step   int
	max    int
	doing  string
	since  time.Time
	tokens int
	rowed  int    // the step whose number stands on the screen already
	said   string // the end of what the model has written of this reply
	shown  bool   // the live line is on the screen

	stop chan struct{}
	done chan struct{}
}

type styles struct{ dim, good, bad, name lipgloss.Style }

func newStyles(r *lipgloss.Renderer) styles {
	return styles{
		dim: r.NewStyle().Faint(true), name: r.NewStyle().Bold(true),
		good: r.NewStyle().Foreground(lipgloss.Color("2")), bad: r.NewStyle().Foreground(lipgloss.Color("1")),
	}
}

const repaint = 100 * time.Millisecond

func newScreen(out, err io.Writer, t terminal, st styles) *screen {
	s := &screen{
		out: out, err: err, terminal: t, styles: st, began: time.Now(), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go s.paint()
	return s
}

// paint keeps the live line moving until the screen is closed.
func (s *screen) paint() {
	defer close(s.done)
	if !s.terminal.live {
		<-s.stop
		return
	}
	tick := time.NewTicker(repaint)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.mu.Lock()
			s.draw()
			s.mu.Unlock()
		}
	}
}

// draw puts the live line on the screen. The lock is held.
func (s *screen) draw() {
	if !s.terminal.live || s.doing == "" {
		return
	}
	width := s.terminal.width()
	parts := []string{clock(time.Since(s.began))}
	if s.step > 0 {
		parts = append(parts, fmt.Sprintf("step %d/%d", s.step, s.max))
	}
	if s.tokens > 0 && width >= roomy {
		parts = append(parts, count(s.tokens))
	}
	text := strings.Join(append(parts, s.doing), "  ")
	if words := lastLine(s.said); words != "" {
		text += "  "
		text += end(words, width-1-ansi.StringWidth(text))
	} else if d := time.Since(s.since); d >= time.Second && s.step > 0 {
		took := "  " + clock(d)
		text = cut(text, width-1-len(took)) + took
	}
	fmt.Fprint(s.err, clearRow+s.styles.dim.Render(cut(text, width-1)))
	s.shown = true
}

// roomy is the width from which on the live line has room for more than what goes on.
const roomy = 60

// line prints one line above the live one. The lock is held.
func (s *screen) line(text string) {
	if s.shown {
		fmt.Fprint(s.err, clearRow)
		s.shown = false
	}
	fmt.Fprintln(s.err, text)
	s.draw()
}

func (s *screen) now(doing string) {
	s.doing, s.since = doing, time.Now()
	s.draw()
}

func (s *screen) start(b started) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.max = b.MaxSteps
	if b.Demo && b.Recorded {
		s.line(s.styles.dim.Render("The answers are recorded; for a live model set DEEPSWE_BASE_URL, without --demo."))
	}
	s.line(fmt.Sprintf("%s  %s in %s", s.styles.name.Render(plain(b.Task)), plain(b.Model), b.Sandbox))
	s.omissions("not copied: ", b.NotCopied)
}

// manyOmissions is how many files are told one by one.
const manyOmissions = 5

// omissions tells about files that are left out. The lock is held.
func (s *screen) omissions(what string, all []repo.Omission) {
	for i, m := range all {
		if i == manyOmissions && len(all) > i+1 {
			s.line(s.styles.bad.Render(what) + fmt.Sprintf("%d more files", len(all)-i))
			return
		}
		s.line(s.styles.bad.Render(what) + plain(m.Path) + ": " + plain(m.Reason))
	}
}

func (s *screen) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now(text)
}

func (s *screen) pull(p env.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !p.Done:
		s.doing = plain(Pulling(p))
	case p.Err == nil:
		s.line(s.styles.dim.Render(plain(Pulling(p))))
	}
}

func (s *screen) phase(p attempt.Phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now(map[attempt.Phase]string{
		attempt.PhaseSandbox: "starting the sandbox", attempt.PhaseAgent: "asking the model", attempt.PhasePatch: "computing the patch",
	}[p])
}

func (s *screen) ready(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dir = dir
}

func (s *screen) event(e agent.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case agent.EventStep:
		s.step, s.said = e.Step, ""
		s.now("thinking")
	case agent.EventText:
		s.said = tail(s.said+e.Text, 1000)
	case agent.EventReply:
		s.said = ""
		s.tokens = e.Usage.Prompt + e.Usage.Completion
		if text := spoken(e.Text); text != "" {
			s.line(s.row(e.Step, " ", s.styles.dim.Render(cut(text, s.terminal.width()-7))))
		}
	case agent.EventCall:
		s.now(describe(e.Call, s.dir))
	case agent.EventResult:
		s.result(e)
	case agent.EventProblem, agent.EventNotice:
		s.line(s.row(e.Step, s.styles.bad.Render("!"), "told the model: "+firstLine(e.Text, s.terminal.width()-24)))
	case agent.EventFallback:
		s.line(s.row(e.Step, " ", "the endpoint takes no tool calls: going on in the format "+e.Text))
	case agent.EventStart, agent.EventDifference, agent.EventStop:
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
	text := cut(describe(e.Call, s.dir), max(20, s.terminal.width()-9-len(took)))
	if took != "" {
		text += "  " + s.styles.dim.Render(took)
	}
	s.line(s.row(e.Step, mark, text))
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

func (s *screen) check(command string, passed bool, output string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mark := s.styles.good.Render("passes")
	if !passed {
		mark = s.styles.bad.Render("fails")
	}
	s.line("")
	s.line(fmt.Sprintf("%s in a fresh sandbox, with the patch alone: %s", command, mark))
	for l := range strings.Lines(output) {
		s.line("  " + cut(plain(strings.TrimRight(l, "\r\n")), s.terminal.width()-3))
	}
}

func (s *screen) finish(o outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing = ""
	if o.Run == "" {
		return nil // nothing began, and main prints why
	}
	s.line("")
	s.line(s.verdict(o))
	if o.Detail != "" {
		s.line(o.Detail)
	}
	s.answer(o.Answer)
	switch {
	case o.Applied && o.Branch != "":
		s.line("applied, and committed as " + o.Branch)
	case o.Applied:
		s.line("applied")
	case o.Branch != "":
		s.line("committed as " + o.Branch)
	}
	s.omissions("not in the patch: ", o.Omitted)
	for _, entry := range []struct {
		name  string
		value *string
	}{{"patch", o.Patch}, {"trajectory", o.Trajectory}} {
		if entry.value != nil {
			s.line(s.styles.dim.Render(fmt.Sprintf("%-11s", entry.name)) + *entry.value)
		}
	}
	if len(o.diff) == 0 {
		return nil
	}
	if s.terminal.shared {
		s.line("") // people who watch both streams want a gap before the patch
	}
	_, err := s.out.Write(o.diff)
	return err
}

// verdict is the one line that says how it ended.
func (s *screen) verdict(o outcome) string {
	mark, what := s.styles.bad, "no patch"
	switch {
	case o.ExitCode == ExitDone:
		mark, what = s.styles.good, "solved"
	case o.Patch != nil && o.Status == string(agent.Submitted):
		what = "patch saved"
	case o.Patch != nil:
		what = "patch so far saved"
	case len(o.diff) > 0:
		what = "patch not saved"
	}
	text := fmt.Sprintf("%s (%s) after %s, %s", mark.Render(what), strings.ReplaceAll(o.Status, "_", " "), steps(o.Steps), clock(time.Since(s.began)))
	if o.Tokens.Completion > 0 {
		text += fmt.Sprintf(", %s read, %s written", count(o.Tokens.Prompt), count(o.Tokens.Completion))
	}
	return text
}

// answerLines is how much of what the agent says about its work is shown; all of it is in the trajectory.
const answerLines = 10

// answer shows what the agent says about its work. The lock is held.
func (s *screen) answer(text string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, l := range lines[:min(len(lines), answerLines)] {
		if l = plain(strings.TrimSpace(l)); l != "" || i > 0 {
			s.line(strings.TrimRight("  "+cut(l, s.terminal.width()-3), " "))
		}
	}
}

func (s *screen) streams() bool { return s.terminal.live }

func (s *screen) close() error {
	close(s.stop)
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown {
		fmt.Fprint(s.err, clearRow)
	}
	return nil
}
