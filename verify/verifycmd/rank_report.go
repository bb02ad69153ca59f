package verifycmd

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"deepswe/agent/cli"
	"deepswe/verify/plot"
	"deepswe/verify/rank/ranking"
)

// mostTasks is how many tasks have a line each on a terminal; the page has them all.
const mostTasks = 40

// printRanking prints a ranking for people: Best@k of each verifier, then the choice for each task.
func printRanking(out io.Writer, rep *ranking.Report, dir string) {
	if len(rep.Curves) > 0 {
		printCurves(out, rep)
	}
	if len(rep.Results) <= mostTasks {
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		for _, t := range rep.Results {
			if t.Chosen == nil {
				fmt.Fprintf(w, "%s\t-\tno candidate\n", cli.Plain(t.Task))
				continue
			}
			label, truth := "", ""
			for _, c := range t.Candidates {
				if c.Attempt != *t.Chosen {
					continue
				}
				if label = c.Label(); c.Solved != nil {
					truth = map[bool]string{true: "solved", false: "not solved"}[*c.Solved]
				}
			}
			fmt.Fprintf(w, "%s\t%s of %d\t%s\t%s\n", cli.Plain(t.Task), cli.Plain(label), len(t.Candidates),
				cli.Plain(t.Reason), truth)
		}
		_ = w.Flush() // a reader that has gone away is noticed by main
	}
	fmt.Fprintf(out, "%s: %s, %d distinct, %d without a change, %d scored, %d tested\n",
		cli.Plural(rep.Tasks, "task"), cli.Plural(rep.Candidates, "candidate"), rep.Distinct, rep.Empty, rep.Scored,
		rep.Tested)
	if rep.Truth > 0 {
		fmt.Fprintf(out, "chosen by %s: %d of %d solve their task\n", rep.Verifier, rep.ChosenSolved, rep.Chosen)
	}
	if text := costWords(rep.Cost); text != "" {
		fmt.Fprintln(out, "cost: "+text)
	}
	for _, name := range []string{ranking.PredsFile, ranking.PageFile} {
		fmt.Fprintf(out, "%s/%s\n", dir, name)
	}
}

// costWords describes the cost of a ranking; empty if there was none.
func costWords(c ranking.Cost) string {
	if c == (ranking.Cost{}) {
		return ""
	}
	text := fmt.Sprintf("%s to the judge (%s tokens), %s of the base, %s of candidates",
		cli.Plural(c.Requests, "request"), cli.Count(c.Tokens), cli.Plural(c.BaseRuns, "sandbox run"),
		cli.Plural(c.CandidateRuns, "sandbox run"))
	if c.Written > 0 {
		text += fmt.Sprintf(", %s to write tests", cli.Plural(c.Written, "attempt"))
	}
	if c.Failures > 0 {
		text += fmt.Sprintf(", %s", cli.Plural(c.Failures, "infrastructure failure"))
	}
	return text
}

// printCurves prints Best@k as a table.
func printCurves(out io.Writer, rep *ranking.Report) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	for i, row := range rep.Table() {
		text := ""
		switch {
		case i == 0:
			text = "95% at the last"
		case i > 1:
			points := rep.Curves[i-2].Points
			last := points[len(points)-1]
			text = plot.Interval(last.Low, last.High)
		}
		fmt.Fprintf(w, "%s\t%s\t\n", strings.Join(row, "\t"), text)
	}
	_ = w.Flush()
}

// printRankingJSON prints a line for each task, and the summary.
func printRankingJSON(lines *cli.JSONLines, rep *ranking.Report) {
	for _, t := range rep.Results {
		_ = lines.Print(struct {
			Type    string `json:"type"`
			Version int    `json:"version"`
			ranking.TaskReport
		}{"choice", 1, t})
	}
	summary := *rep
	summary.Results = nil
	_ = lines.Print(summary)
}
