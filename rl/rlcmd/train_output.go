package rlcmd

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"deepswe/agent/cli"
	"deepswe/rl/metrics"
	"deepswe/rl/train"
	"deepswe/rl/train/config"
	"deepswe/rl/train/games"
	"deepswe/rl/train/lab"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// audience is the observer of one run. It passes everything to the screen, and steps and warnings to print, too.
type audience struct {
	run   string
	view  *runView
	print func(event)
}

func (a *audience) Playing(step int, s part.Split, done, total int) {
	a.view.playing(step, string(s), done, total)
}

func (a *audience) Warning(text string) {
	a.view.warning(text)
	a.print(event{Event: "warning", Run: a.run, Text: text})
}

func (a *audience) Point(p metrics.Point) {
	a.view.point(p)
	a.print(event{Event: "step", Run: a.run, Step: &p.Step, Metrics: p.Values})
}

// event is a line of --json. Version rises when a member changes its meaning.
type event struct {
	Version int                `json:"version"`
	Event   string             `json:"event"`
	Run     string             `json:"run"`
	Step    *int               `json:"step,omitempty"`
	Text    string             `json:"text,omitempty"`
	Dir     string             `json:"dir,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

func (t *training) print(e event) {
	if t.json {
		e.Version = 1
		_ = t.lines.Print(e) // printed returns the error
	}
}

// printed returns the first error of printing --json.
func (t *training) printed() error {
	if err := t.lines.Err(); err != nil {
		return fmt.Errorf("write --json: %w", err)
	}
	return nil
}

// finish prints the outcome. It returns an error if the run's verdict is negative.
func (t *training) finish(c config.Config, results []train.Result, dir string) error {
	verdict, no := "", error(nil)
	if len(results) == 1 {
		if verdict, no = games.Verdict(c, results[0].Points); no != nil {
			no = &cli.ExitError{Code: cli.ExitUnsolved, Err: no}
		}
	}
	return errors.Join(t.outcome(c, results, dir, verdict), no)
}

func (t *training) outcome(c config.Config, results []train.Result, dir, verdict string) error {
	if t.json {
		for _, r := range results {
			final := map[string]float64{}
			for _, name := range []string{
				"val/pass@1", "val/pass@1_low", "val/pass@1_high", "val/random", "reward/mean", "sft/loss", "val/loss",
			} {
				if v, ok := r.Final(name); ok {
					final[name] = v
				}
			}
			t.print(event{Event: "done", Run: r.Run, Text: verdict, Dir: r.Dir, Metrics: final})
		}
		return t.printed()
	}
	var b strings.Builder
	if len(results) == 1 {
		b.WriteString(single(results[0]))
	} else {
		b.WriteString(lab.Compare(c.Ablation, results))
	}
	if verdict != "" {
		b.WriteString(verdict + "\n")
	}
	fmt.Fprintf(&b, "report: %s\n", filepath.Join(dir, record.ReportFile))
	_, err := io.WriteString(t.deps.Out, b.String())
	return err
}

// single is the outcome of a run in a line.
func single(r train.Result) string {
	steps := 0
	if n := len(r.Points); n > 0 {
		steps = r.Points[n-1].Step
	}
	text := fmt.Sprintf("%s: %d steps", r.Run, steps)
	if pass, ok := r.Final("val/pass@1"); ok {
		low, _ := r.Final("val/pass@1_low")
		high, _ := r.Final("val/pass@1_high")
		text += fmt.Sprintf(", validation pass@1 %.3f [%.3f, %.3f]", pass, low, high)
	}
	if random, ok := r.Final("val/random"); ok {
		text += fmt.Sprintf(", random moves %.3f", random)
	}
	for _, loss := range []struct{ name, of string }{{"sft/loss", "loss"}, {"val/loss", "held-out loss"}} {
		if last, ok := r.Final(loss.name); ok {
			text += fmt.Sprintf(", %s %.3f to %.3f", loss.of, first(r.Points, loss.name), last)
		}
	}
	return text + "\n"
}

func first(points []metrics.Point, name string) float64 {
	for _, p := range points {
		if v, ok := p.Values[name]; ok {
			return v
		}
	}
	return 0
}
