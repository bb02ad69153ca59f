package verifycmd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"deepswe/agent/cli"
	"deepswe/verify/mine"
)

const unshallow = "the clone is shallow: git fetch --unshallow brings the rest of its history"

// summary prints the funnel.
func (m *mining) summary() {
	r, out := m.report, m.d.Out
	if r.Shallow {
		fmt.Fprintln(out, unshallow)
	}
	fmt.Fprint(out, stage("commits", r.Commits, r.UnfitReasons()), stage("candidates", r.Candidates, r.Reasons()),
		stage("validated", r.Validated, nil), stage("sound", r.Sound, nil))
	if made := r.Synthetic; made != nil {
		fmt.Fprint(out, stage("bugs made", made.Bugs, made.Reasons()), stage("sound", made.Sound, nil))
	}
	if len(r.Tasks) > 0 {
		fmt.Fprint(out, stage("tasks", len(r.Tasks), r.Evidence()))
	}
	wanted := r.Wanted()
	for _, w := range wanted[:min(len(wanted), 5)] {
		fmt.Fprintf(out, "%s whose tests do not run here: %s\n", cli.Plural(w.N, "candidate"), cli.Plain(w.Of))
	}
	logs := m.dir.Path(mine.LogsDir)
	if _, err := os.Stat(logs); err == nil && len(wanted) > 0 {
		fmt.Fprintf(out, "what their tests print: %s\n", logs)
	}
	if len(wanted) > 0 && len(m.unfetched) > 0 {
		fmt.Fprintf(out, "submodules that are not here: %s; git submodule update --init brings them\n",
			cli.Plain(strings.Join(m.unfetched, ", ")))
	}
	if len(wanted) > 0 {
		fmt.Fprintln(out, "to get more: --setup COMMAND or --image REF that brings what they lack,\n"+
			"or install it here, and then --again")
	}
	fmt.Fprintln(out, filepath.Join(m.folder.Path, mine.TasksFile))
	if r.Share > 0 {
		fmt.Fprintln(out, filepath.Join(m.folder.Held().Path, mine.TasksFile))
	}
	fmt.Fprintln(out, filepath.Join(m.folder.Path, mine.ReportFile))
}

func listed(all []mine.Count) string {
	var parts []string
	for _, c := range all {
		parts = append(parts, fmt.Sprintf("%d %s", c.N, c.Of))
	}
	return strings.Join(parts, "; ")
}

// stage returns a stage of the funnel: how many are left, and why others were lost. Lines have at most 80 columns.
func stage(name string, n int, lost []mine.Count) string {
	head := fmt.Sprintf("%-10s %5d   ", name, n)
	text := ""
	for _, line := range cli.Wrap(listed(lost), 80-len(head)) {
		text += strings.TrimRight(head+line, " ") + "\n"
		head = strings.Repeat(" ", len(head))
	}
	return text
}
