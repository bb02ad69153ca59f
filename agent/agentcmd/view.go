package agentcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/charmbracelet/lipgloss"
	"github.com/spf13/cobra"

	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/trajectory"
)

const viewHelp = `Show a trajectory, or what is in a run's directory.

PATH is a trajectory.json (any ATIF document), a steps.jsonl, or a directory: of one
attempt, which is shown, or of a run, whose attempts are listed.`

// viewOptions are the flags of view.
type viewOptions struct {
	step int
	full bool
}

func newView(d Deps) *cobra.Command {
	var o viewOptions
	cmd := &cobra.Command{
		Use:     "view PATH",
		Short:   "Show a trajectory or a run",
		Long:    viewHelp,
		Example: "  deepswe view trajectory.json\n  deepswe view --step 7 --full runs/20261121-101500-abc123",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usage(errors.New("view takes one path: of a trajectory, or of a run's directory"))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return runView(d, o, args[0]) },
	}
	cmd.Flags().IntVar(&o.step, "step", 0, "show step `N` only")
	cmd.Flags().BoolVar(&o.full, "full", false, "show long texts whole")
	return cmd
}

func runView(d Deps, o viewOptions, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return cli.Usage(err)
	}
	if !info.IsDir() {
		return viewTrajectory(d.Out, o, path)
	}
	attempts, err := findAttempts(path)
	if err != nil {
		return err
	}
	switch len(attempts) {
	case 0:
		return cli.Usage(fmt.Errorf("%s holds no attempt (no %s below it)", path, attempt.StepsFile))
	case 1:
		return viewAttempt(d.Out, o, attempts[0])
	}
	return listAttempts(d.Out, path, attempts)
}

// findAttempts returns the directories at and below path that hold an attempt.
func findAttempts(path string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == attempt.StepsFile {
			dirs = append(dirs, filepath.Dir(p))
		}
		return err
	})
	return dirs, err
}

func viewAttempt(out io.Writer, o viewOptions, dir string) error {
	if err := viewTrajectory(out, o, filepath.Join(dir, attempt.StepsFile)); err != nil {
		return err
	}
	if o.step > 0 {
		return nil
	}
	patch, err := os.ReadFile(filepath.Join(dir, attempt.PatchFile))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(out, "\nno patch")
		return nil
	}
	if err == nil {
		fmt.Fprintf(out, "\n%s\n%s", "patch", patch)
	}
	return err
}

func listAttempts(out io.Writer, root string, dirs []string) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ATTEMPT\tEND\tSTEPS\tFILES")
	for _, dir := range dirs {
		name, err := filepath.Rel(root, dir)
		if err != nil {
			name = dir
		}
		r, err := attempt.ReadReport(dir)
		if err != nil {
			fmt.Fprintf(w, "%s\tunfinished\t\t\n", cli.Plain(name))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", cli.Plain(name), strings.ReplaceAll(string(r.StopReason), "_", " "), r.Steps, len(r.Files))
	}
	return w.Flush()
}

func viewTrajectory(out io.Writer, o viewOptions, path string) error {
	rec, err := trajectory.Open(path)
	if err != nil {
		return cli.Usage(err)
	}
	if o.step < 0 {
		return cli.Usage(errors.New("--step counts from 1"))
	}
	if o.step > len(rec.Turns) {
		return cli.Usage(fmt.Errorf("there is no step %d: the trajectory has %d", o.step, len(rec.Turns)))
	}
	v := viewer{out: out, full: o.full, name: lipgloss.NewRenderer(out).NewStyle().Bold(true)}
	if o.step == 0 {
		v.heading(rec)
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
	fmt.Fprintf(v.out, "%s  %s, format %s, %d steps\n", v.name.Render(cli.Plain(cli.First(h.Task, h.Trajectory, "trajectory"))),
		cli.Plain(cli.First(h.Model, "unknown model")), cli.First(h.Format, "unknown"), len(rec.Turns))
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

// shownLines is how much of a long text is shown without --full.
const shownLines = 30

// text prints a text indented, without what would steer the terminal.
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

// indented lays JSON out for reading; what is not JSON stays as it is.
func indented(s string) string {
	var v any
	if json.Unmarshal([]byte(s), &v) != nil {
		return s
	}
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return s
	}
	return string(data)
}
