package agentcmd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env/disk"
)

const viewHelp = `Show a trajectory, or what is in a run's directory.

PATH is a trajectory.json (any ATIF document), a steps.jsonl, or a directory: of
one attempt, which is shown, or of a run of solve, eval, grade or train, whose
attempts are listed. The run may still be going on. The id of a run in the
default directory is enough, and without PATH the last one there is shown.

--serve shows runs, and all runs in folders of them, in a browser: tables that
can be filtered, tasks with their attempts side by side, rollouts step by step
and down to the token, and comparisons. Without PATH it shows the default
directory. ADDRESS is HOST:PORT; without one, a free port of this machine is
taken. Only who has the printed address, which admits one browser, can look.
--html writes a run, or one attempt, as a page that needs no server.

A run may also be an archive (.tar.zst), as export --archive writes it.`

type viewOptions struct {
	step  int
	full  bool
	serve string
	html  string // the file to write

	about string // information about the run that is not in its trajectory
}

func newView(d Deps) *cobra.Command {
	var o viewOptions
	cmd := &cobra.Command{
		Use:   "view [PATH]...",
		Short: "Show a trajectory or a run",
		Long:  viewHelp,
		Example: "  deepswe view trajectory.json\n  deepswe view --step 7 --full 20261121-101500-abc123\n" +
			"  deepswe view --serve\n  deepswe view --serve=127.0.0.1:8080 runs/one runs/two\n" +
			"  deepswe view --html run.html last",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 && o.serve == "" {
				return cli.Usagef("view takes one path: of a trajectory, or of a run's directory")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			open := &opened{d: d}
			defer open.closeAll()
			args, err := unpackRuns(args, open)
			switch {
			case err != nil:
				return err
			case o.serve != "":
				return serveRuns(cmd.Context(), d, o.serve, args)
			case o.html != "":
				return writeHTML(d, o.html, cmp.Or(append(args, lastRun)...))
			}
			return runView(d, o, cmp.Or(append(args, lastRun)...))
		},
		ValidArgsFunction: completeRuns(d),
	}
	cmd.Flags().IntVar(&o.step, "step", 0, "show step `N` only")
	cmd.Flags().BoolVar(&o.full, "full", false, "show long texts whole")
	cmd.Flags().StringVar(&o.serve, "serve", "", "show runs in a browser, at `ADDRESS`, until interrupted")
	cmd.Flags().StringVar(&o.html, "html", "", "write a run, or an attempt, as one page to `FILE`")
	cmd.MarkFlagsMutuallyExclusive("serve", "html")
	cmd.Flags().Lookup("serve").NoOptDefVal = freeAddress
	return cmd
}

func runView(d Deps, o viewOptions, path string) error {
	path, err := pathOf(d, path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return cli.Usage(err)
	}
	if !info.IsDir() {
		return viewTrajectory(d.Out, o, path)
	}
	r, err := run.Read(path)
	if err == nil {
		return viewRun(d, o, path, r)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return cli.Usage(err)
	}
	attempts, err := findAttempts(path)
	if err != nil {
		return err
	}
	switch len(attempts) {
	case 0:
		return cli.Usagef("%s holds neither a run nor an attempt (no %s below it)", path, attempt.StepsFile)
	case 1:
		return viewAttempt(d.Out, o, attempts[0])
	}
	return listAttempts(d.Out, path, attempts, nil)
}

// viewRun shows a run as far as it has come: its only attempt, or a list of all.
func viewRun(d Deps, o viewOptions, path string, r *run.Reader) error {
	out := d.Out
	dirs, err := r.AttemptDirs()
	if err != nil {
		return err
	}
	holder, alive := r.Writer()
	if len(dirs) == 1 && (r.Manifest.Kind == run.Solve || len(r.Outcomes) < 2) {
		if alive == disk.Alive && o.step == 0 {
			fmt.Fprintf(out, "running: %s\n\n", cli.Plain(holder.String()))
		}
		return viewAttempt(out, o, dirs[0])
	}
	if o.step != 0 {
		return cli.Usagef("--step is for one attempt, and %s holds %d: name its directory", path, len(dirs))
	}
	m := r.Manifest
	fmt.Fprintf(out, "%s  %s, begun %s by %s\n",
		cli.Plain(m.ID), cli.Plain(string(m.Kind)), m.Created.Format(time.DateTime), cli.Plain(m.Program))
	fmt.Fprintln(out, cli.Plain(runState(holder, alive, r.Last)))
	outcomes := map[string]run.Outcome{}
	for _, ended := range r.Outcomes {
		dir := r.AttemptDir(ended.Job)
		if _, err := os.Lstat(dir); err != nil {
			dirs = append(dirs, dir) // of grade, whose results are elsewhere
		}
		outcomes[dir] = ended
	}
	if report := filepath.Join(path, "report.html"); m.Kind == run.Train {
		fmt.Fprintln(out)
		if err := d.Training(out, path); err != nil {
			return err
		}
		if _, err := os.Lstat(report); err == nil {
			fmt.Fprintln(out, "\n"+cli.Plain(report))
		}
	} else {
		fmt.Fprintln(out, tally(r.Outcomes))
		if m.Kind != run.Solve {
			if err := d.Glance(out, path); err != nil {
				return err
			}
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	return listAttempts(out, path, dirs, outcomes)
}

// tally counts the attempts that have ended.
func tally(outcomes []run.Outcome) string {
	failed, graded, solved := 0, 0, 0
	for _, o := range outcomes {
		if o.Failed() {
			failed++
		}
		if o.Reward != nil {
			graded++
			if *o.Reward >= 1 {
				solved++
			}
		}
	}
	text := fmt.Sprintf("attempts: %d finished, %d failed", len(outcomes)-failed, failed)
	if graded > 0 {
		text += fmt.Sprintf("; %d of %d graded are solved", solved, graded)
	}
	return text
}

// runState describes whether a run is live, and when its last event was.
func runState(holder disk.Holder, alive disk.Liveness, last time.Time) string {
	state := "not running"
	switch {
	case alive == disk.Alive:
		state = "running: " + holder.String()
	case alive == disk.Unknown:
		state = "running, or killed: " + holder.String() + ", which cannot be seen from here"
	case holder.PID != 0:
		state = "killed: it was " + holder.String()
	}
	if !last.IsZero() {
		state += "; last event " + last.Format(time.DateTime)
	}
	return state
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
	o.about = aboutSolve(filepath.Dir(filepath.Dir(filepath.Dir(dir))))
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
		fmt.Fprint(out, "\npatch\n")
		if cli.IsTerminal(out) {
			patch = []byte(strings.Join(withoutBinary(patch), "\n") + "\n")
		}
		err = cli.WriteText(out, patch)
	}
	return err
}

// listAttempts prints a line for each attempt, with what its report says or else its outcome.
func listAttempts(out io.Writer, root string, dirs []string, outcomes map[string]run.Outcome) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	graded := false
	for _, o := range outcomes {
		graded = graded || o.Reward != nil
	}
	heading := "ATTEMPT\tEND\tSTEPS\tFILES"
	if graded {
		heading += "\tREWARD"
	}
	fmt.Fprintln(w, heading)
	for _, dir := range dirs {
		name, _ := filepath.Rel(root, dir) // cannot fail: dir is below root
		end, steps, files, reward := "unfinished", "", "", ""
		o, ended := outcomes[dir]
		if ended {
			end = cmp.Or(string(o.StopReason), verdict(o), "done")
		}
		if r, err := attempt.ReadSummary(dir); err == nil {
			end, steps, files = string(r.StopReason), strconv.Itoa(r.Steps), strconv.Itoa(len(r.Files))
		}
		if o.Failed() {
			end = "failed"
		}
		if graded {
			reward = "\t"
		}
		if o.Reward != nil {
			reward += strconv.FormatFloat(*o.Reward, 'g', 3, 64)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s%s\n", cli.Plain(name), strings.ReplaceAll(end, "_", " "), steps, files, reward)
	}
	return w.Flush()
}

// verdict is the status of an outcome of grade, empty for others.
func verdict(o run.Outcome) string {
	var d struct {
		Status string `json:"status"`
	}
	_ = json.Unmarshal(o.Detail, &d) // one that failed has none
	return d.Status
}
