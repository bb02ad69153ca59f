package agentcmd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"deepswe/agent/cli"
	"deepswe/agent/trajectory"
)

// shownLines is how much of a long text is shown without --full.
const shownLines = 30

func viewTrajectory(out io.Writer, o viewOptions, path string) error {
	rec, err := trajectory.Open(path)
	if err != nil {
		return cli.Usage(err)
	}
	if o.step < 0 {
		return cli.Usagef("--step counts from 1")
	}
	if o.step > len(rec.Turns) {
		return cli.Usagef("there is no step %d: the trajectory has %d", o.step, len(rec.Turns))
	}
	v := viewer{out: out, full: o.full, name: lipgloss.NewRenderer(out).NewStyle().Bold(true)}
	if o.step == 0 {
		v.heading(rec)
		fmt.Fprint(out, o.about)
		v.opening(rec)
	}
	for i, turn := range rec.Turns {
		if o.step == 0 || o.step == i+1 {
			v.turn(i+1, turn)
		}
	}
	if o.step == 0 && rec.Stop != nil {
		fmt.Fprintf(out, "\n%s %s\n", v.name.Render("end"), strings.ReplaceAll(string(rec.Stop.Reason), "_", " "))
		v.text(rec.Stop.Error)
	}
	return nil
}

// viewer prints a recording for people.
type viewer struct {
	out  io.Writer
	full bool
	name lipgloss.Style
}

func (v viewer) heading(rec *trajectory.Recording) {
	h := rec.Header
	fmt.Fprintf(v.out, "%s  %s, format %s, %d steps\n",
		v.name.Render(cli.Plain(cmp.Or(h.Task, h.Trajectory, "trajectory"))),
		cli.Plain(cmp.Or(h.Model, "unknown model")), cmp.Or(h.Format, "unknown"), len(rec.Turns))
}

// opening shows the messages before the first reply.
func (v viewer) opening(rec *trajectory.Recording) {
	for _, m := range rec.Messages {
		if m.Role == trajectory.RoleAssistant {
			break
		}
		fmt.Fprintf(v.out, "\n%s\n", v.name.Render(m.Role))
		v.text(m.Content)
	}
}

func (v viewer) turn(n int, t trajectory.Turn) {
	fmt.Fprintf(v.out, "\n%s", v.name.Render(fmt.Sprintf("step %d", n)))
	if u := t.Reply.Usage; u.Completion > 0 {
		fmt.Fprintf(v.out, "  %d tokens read, %d written", u.Prompt, u.Completion)
	}
	fmt.Fprintln(v.out)
	v.text(t.Reply.Message.Reasoning)
	v.text(t.Reply.Message.Content)
	for _, c := range t.Reply.Message.ToolCalls {
		v.text(c.Name + " " + indented(c.Arguments))
	}
	for _, o := range t.Observations {
		fmt.Fprintln(v.out, v.name.Render("observation"))
		v.text(o.Message.Content)
	}
}

// text prints a text, indented and without control characters.
func (v viewer) text(s string) {
	if strings.TrimSpace(s) == "" {
		return
	}
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	left := 0
	if !v.full && len(lines) > shownLines {
		left = len(lines) - shownLines
		lines = lines[:shownLines]
	}
	for _, l := range lines {
		fmt.Fprintln(v.out, "  "+cli.Plain(strings.TrimSuffix(l, "\r")))
	}
	if left > 0 {
		fmt.Fprintf(v.out, "  … %d more lines (--full)\n", left)
	}
}

// indented formats JSON for reading; other text stays as it is.
func indented(s string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(s), "", "  ") != nil {
		return s
	}
	return b.String()
}
