package agentcmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env/disk"
)

const runsHelp = `List the runs in the default directory, the newest first: when each began, what
it worked on, with which model, how it ended, and what became of its patch.

deepswe view RUN shows a run, deepswe apply RUN and deepswe branch RUN NAME
deliver its patch, and deepswe solve --resume RUN goes on with it.`

// shownRuns is how many runs are listed without --all.
const shownRuns = 20

// mostIssue is how many columns of an issue are shown at most.
const mostIssue = 80

// runLine is a run in the list, and a line of --json.
type runLine struct {
	Type    string    `json:"type"` // "run"
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Path    string    `json:"path"`
	Kind    run.Kind  `json:"kind"`
	Created time.Time `json:"created"`
	Repo    string    `json:"repo,omitempty"`
	Issue   string    `json:"issue,omitempty"`
	Model   string    `json:"model,omitempty"`
	// Status is running, killed, dropped, a stop reason or, for a run of many attempts, how many have ended.
	Status  string `json:"status"`
	Applied bool   `json:"applied"`
	Branch  string `json:"branch,omitempty"`
	// PullRequest is the address of the one that was opened last.
	PullRequest string `json:"pull_request,omitempty"`
}

func newRuns(d Deps) *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List runs: what they worked on and how they ended",
		Long:  runsHelp,
		Args:  cli.NoArgs(),
		RunE:  func(*cobra.Command, []string) error { return listRuns(d, all, asJSON) },
	}
	cmd.Flags().BoolVar(&all, "all", false, fmt.Sprintf("list all runs, not only the newest %d", shownRuns))
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON line for every run")
	return cmd
}

func listRuns(d Deps, all, asJSON bool) error {
	parent := d.RunsDir()
	found, err := run.List(parent)
	if err != nil {
		return err
	}
	left := 0
	if !all && len(found) > shownRuns {
		left = len(found) - shownRuns
		found = found[:shownRuns]
	}
	var lines []runLine
	for _, f := range found {
		lines = append(lines, describeRun(f))
	}
	if asJSON {
		out := cli.NewJSONLines(d.Out)
		for _, l := range lines {
			_ = out.Print(l)
		}
		return out.Err()
	}
	if len(lines) == 0 {
		_, err := fmt.Fprintf(d.Out, "no run in %s yet\n", parent)
		return err
	}
	if err := printRuns(d.Out, lines, widthOf(d)); err != nil {
		return err
	}
	if left > 0 {
		_, err = fmt.Fprintf(d.Out, "%d older runs (--all)\n", left)
	}
	return err
}

// describeRun says what is known of a run. One whose files cannot be read is listed with the reason.
func describeRun(f run.Listed) runLine {
	m := f.Manifest
	l := runLine{
		Type: "run", Version: 1, ID: filepath.Base(f.Path), Path: f.Path, Kind: m.Kind, Created: m.Created,
	}
	r, err := run.Read(f.Path)
	if err != nil {
		l.Status = "unreadable"
		return l
	}
	_, alive := r.Writer()
	if m.Kind != run.Solve {
		var s struct{ Model string }
		_ = json.Unmarshal(m.Settings, &s) // other kinds of runs have only a model, if any
		l.Model = s.Model
		l.Status = strings.TrimPrefix(tally(r.Outcomes), "attempts: ")
		if alive == disk.Alive {
			l.Status = "running, " + l.Status
		}
		return l
	}
	s, err := solveOf(r, f.Path)
	if err != nil {
		l.Status = "unreadable"
		return l
	}
	l.Repo, l.Model = cmp.Or(s.settings.Repo, s.settings.Task), s.settings.Model
	l.Issue = cmp.Or(s.settings.Issue, cli.FirstLine(s.settings.Statement, 0))
	l.Status = s.status(alive)
	l.Applied, l.Branch = s.delivered()
	l.PullRequest = s.proposed()
	return l
}

// status is how a run of solve ended, or that it has not.
func (s *solveRun) status(alive disk.Liveness) string {
	sum, ended := s.readSummary()
	switch {
	case alive == disk.Alive:
		return "running"
	case ended && len(s.Notes) > 0 && s.Notes[len(s.Notes)-1].Event == noteDropped:
		return noteDropped
	case ended:
		return string(sum.StopReason)
	}
	return "killed"
}

// delivered describes how the patch was delivered after the last work on it.
func (s *solveRun) delivered() (applied bool, branch string) {
	for _, done := range s.deliveries() {
		applied, branch = applied || done.Applied, cmp.Or(done.Branch, branch)
	}
	return applied, branch
}

// deliveredWords says where a patch was delivered; empty if it was not.
func deliveredWords(applied bool, branch string) string {
	switch {
	case applied && branch != "":
		return "applied, and committed as " + branch
	case applied:
		return "applied"
	case branch != "":
		return "committed as " + branch
	}
	return ""
}

// deliveries returns the deliveries since the last work on the patch that were not taken back.
func (s *solveRun) deliveries() []delivery {
	var all []delivery
	for _, n := range s.sinceWork() {
		var done delivery
		switch {
		case n.Event == noteUndone && len(all) > 0:
			all = all[:len(all)-1]
		case n.Event == noteDelivered && json.Unmarshal(n.Data, &done) == nil:
			all = append(all, done)
		}
	}
	return all
}

// widthOf returns the width of the terminal for results; 0 if they do not go to a terminal.
func widthOf(d Deps) int {
	if cli.IsTerminal(d.Out) {
		return cli.ScreenOf(d.Err).Width()
	}
	return 0
}

// printRuns prints the list. On a terminal, columns are shortened so that rows fit, and the issue gets the width that
// the others leave. In a pipe, everything except the issue is printed in full.
func printRuns(out io.Writer, lines []runLine, width int) error {
	rows := [][]string{{"DATE", "RUN", "REPOSITORY", "ISSUE", "MODEL", "STATUS"}}
	for _, l := range lines {
		status := strings.ReplaceAll(l.Status, "_", " ")
		if l.Applied {
			status += ", applied"
		}
		if l.Branch != "" {
			status += ", branch " + l.Branch
		}
		if l.PullRequest != "" {
			status += ", " + l.PullRequest
		}
		where := string(l.Kind)
		if l.Repo != "" {
			where = filepath.Base(l.Repo)
		}
		rows = append(rows, []string{
			l.Created.Local().Format("01-02 15:04"), shortID(l.ID, width), where, l.Issue, l.Model, status,
		})
	}
	const repo, issue, model, last = 2, 3, 4, 5
	for _, row := range rows {
		row[issue] = cli.Cut(row[issue], mostIssue) // an issue can be one long line
	}
	if width > 0 {
		fit(rows, width-1, repo, issue, model, last)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = cli.Plain(row[i])
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// shortID returns the end of an id, which is enough to name the run, if the width is limited.
func shortID(id string, width int) string {
	if i := strings.LastIndex(id, "-"); width > 0 && len(id)-i == 7 {
		return id[i+1:]
	}
	return id
}

// fit shortens columns until all rows fit into the width. It begins with the widest column that may be shortened.
func fit(rows [][]string, width int, may ...int) {
	const least, gap = 8, 2
	widest := make([]int, len(rows[0]))
	total := -gap
	for i := range widest {
		for _, row := range rows {
			widest[i] = max(widest[i], len([]rune(row[i])))
		}
		total += widest[i] + gap
	}
	for total > width {
		at := -1
		for _, i := range may {
			if widest[i] > least && (at < 0 || widest[i] > widest[at]) {
				at = i
			}
		}
		if at < 0 {
			break
		}
		widest[at]--
		total--
	}
	for _, row := range rows {
		for _, i := range may {
			row[i] = cli.Cut(row[i], widest[i])
		}
	}
}

// aboutSolve returns what the solve run at the path worked on; empty if there is no such run.
func aboutSolve(path string) string {
	s, err := readSolve(path)
	if err != nil {
		return ""
	}
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-11s%s\n", name, cli.Plain(value))
		}
	}
	line("run", s.path)
	line("begun", s.Manifest.Created.Local().Format(time.DateTime))
	line("repository", strings.TrimSuffix(fmt.Sprintf("%s at %.10s", s.settings.Repo, s.settings.Head), " at "))
	line("issue", cmp.Or(s.settings.Issue, cli.FirstLine(s.settings.Statement, 60)))
	line("sandbox", s.settings.Sandbox)
	if sum, ended := s.readSummary(); ended {
		t := sum.Seconds
		line("time", fmt.Sprintf("%s (start %.0fs, model %.0fs, tools %.0fs)",
			cli.Clock(time.Duration((t.Start+t.Model+t.Tools+t.Patch)*float64(time.Second))), t.Start, t.Model, t.Tools))
	}
	line("pull", s.proposed())
	line("delivered", deliveredWords(s.delivered()))
	return b.String()
}
