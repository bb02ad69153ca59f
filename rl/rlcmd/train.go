// Package rlcmd holds the commands about learning: train and export.
//
// It is one of the packages where cobra lives. Everything that a command touches outside comes in through its Deps; the
// package keeps no state. A command runs once.
package rlcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"deepswe/agent/run"
	"deepswe/rl/metrics"
	"deepswe/rl/report"
	"deepswe/rl/train"
)

// TrainDeps is what train needs of the world.
type TrainDeps struct {
	In       io.Reader
	Out, Err io.Writer
	// Log hears what does not belong on the screen; nil is silent.
	Log *slog.Logger
	// Abandon is closed when the user asks a second time to stop: rollouts under way are then given up.
	Abandon <-chan struct{}
}

// training is one run of the command.
type training struct {
	deps TrainDeps

	config, out, metricsAddr string
	set                      []string
	dryRun, resume, json     bool
}

const trainLong = `Learns a policy by reinforcement: samples tasks, rolls out groups, turns rewards into
advantages and token rows, updates the policy, publishes it, measures it now and then.

The configuration is YAML; rl/train/README.md documents every key and its default, and
--dry-run prints it with all of them. A run lives in a directory (runs/NAME): metrics as
JSON lines and as TensorBoard event files, checkpoints, and report.html with the curves.
A run that was stopped or killed goes on with --resume, with the same steps that it would
have taken.

A configuration with an ablation makes one run for each variant and seed, and compares
them in one report.`

const trainExample = `  deepswe train --config testdata/frozenlake.yaml
  deepswe train --config testdata/frozenlake.yaml --set algorithm.preset=grpo --set seed=2 --out runs/grpo
  deepswe train --config testdata/frozenlake.yaml --set filter.max_steps=drop --dry-run
  deepswe train --resume --out runs/frozenlake --metrics-addr 127.0.0.1:9100`

// NewTrain is "deepswe train".
func NewTrain(d TrainDeps) *cobra.Command {
	t := &training{deps: d}
	c := &cobra.Command{
		Use:     "train --config FILE",
		Short:   "Train a policy by reinforcement learning",
		Long:    trainLong,
		Example: trainExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return inputError{fmt.Errorf("train takes no arguments; is %q meant for --config?", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return t.execute(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&t.config, "config", "", "configuration to read; with --resume the run's own where this is left out")
	f.StringVar(&t.out, "out", "", "directory of the run [runs/NAME]")
	f.StringArrayVar(&t.set, "set", nil, "change the configuration, `KEY=VALUE`: a path like steps or optimizer.learning_rate, or a switch of the algorithm")
	f.BoolVar(&t.dryRun, "dry-run", false, "print the configuration in full and stop")
	f.BoolVar(&t.resume, "resume", false, "go on with the run in the directory")
	f.BoolVar(&t.json, "json", false, "print JSON lines on stdout: one a step, one at the end of each run")
	f.StringVar(&t.metricsAddr, "metrics-addr", "", "serve /metrics for Prometheus, and the report, at this `ADDRESS`")
	return c
}

func (t *training) execute(ctx context.Context) error {
	c, err := t.load()
	if err != nil {
		return inputError{err}
	}
	if t.dryRun {
		text, err := c.YAML()
		if err != nil {
			return err
		}
		_, err = t.deps.Out.Write(text)
		return err
	}
	dir := t.out
	if dir == "" {
		dir = filepath.Join("runs", c.Name)
	}
	o := train.Options{Dir: dir, Resume: t.resume, Log: t.deps.Log, Abandon: t.deps.Abandon, Metrics: metrics.NewPrometheus()}
	stop, err := t.serve(o.Metrics, dir)
	if err != nil {
		return inputError{err}
	}
	results, err := t.watched(ctx, c, o)
	err = errors.Join(err, stop())
	switch {
	case errors.Is(err, run.ErrInterrupted):
		fmt.Fprintf(t.deps.Err, "stopped; go on with: deepswe train --resume --out %s\n", dir)
		return err
	case errors.Is(err, run.ErrExists), errors.Is(err, fs.ErrNotExist), errors.Is(err, run.ErrLocked), errors.Is(err, run.ErrOther),
		errors.Is(err, train.ErrOtherConfig):
		return inputError{err}
	case err != nil:
		return err
	}
	return t.finish(c, results, dir)
}

// load reads the configuration that the flags name.
func (t *training) load() (train.Config, error) {
	path := t.config
	switch {
	case path == "" && t.resume && t.out != "":
		if err := run.Resumable(t.out, run.Train); err != nil {
			return train.Config{}, err
		}
		path = filepath.Join(t.out, train.ConfigFile)
	case path == "" && t.resume:
		return train.Config{}, errors.New("--resume needs --out DIR, or --config FILE")
	case path == "":
		return train.Config{}, errors.New("--config FILE is missing; testdata/frozenlake.yaml is one that runs anywhere")
	}
	var data []byte
	var err error
	if path == "-" {
		data, err = io.ReadAll(t.deps.In)
	} else {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return train.Config{}, fmt.Errorf("read configuration: %w", err)
	}
	c, err := train.Load(data, train.BuiltIn(), t.set...)
	if err != nil {
		return train.Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// watched trains while somebody watches: a terminal, a log, or a program.
func (t *training) watched(ctx context.Context, c train.Config, o train.Options) ([]train.Result, error) {
	live, width := terminal(t.deps.Err)
	view := report.NewView(t.deps.Err, report.ViewOptions{Live: live, Width: width})
	out := &jsonLines{on: t.json, w: t.deps.Out}
	o.Observer = func(run string, c train.Config) train.Observer {
		return &audience{run: run, view: view.Run(run, c.Steps), out: out}
	}
	results, err := train.Start(ctx, c, o)
	return results, errors.Join(err, out.err, ignoreClosed(view.Close()))
}

// ignoreClosed forgives a screen that went away: the run did not need it.
func ignoreClosed(error) error { return nil }

// terminal tells whether a writer is one, and how wide.
func terminal(w io.Writer) (live bool, width int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false, 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return err == nil, width
}

// audience passes what happens in a run to the screen and to stdout.
type audience struct {
	run  string
	view *report.RunView
	out  *jsonLines
}

func (a *audience) Playing(step int, s train.Split, done, total int) {
	a.view.Playing(step, string(s), done, total)
}

func (a *audience) Warning(text string) {
	a.view.Warning(text)
	a.out.write(event{Event: "warning", Run: a.run, Text: text})
}

func (a *audience) Point(p metrics.Point) {
	a.view.Point(p)
	a.out.write(event{Event: "step", Run: a.run, Step: &p.Step, Metrics: p.Values})
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

// jsonLines writes events from several runs.
type jsonLines struct {
	on  bool
	mu  sync.Mutex
	w   io.Writer
	err error
}

func (j *jsonLines) write(e event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.on || j.err != nil {
		return
	}
	e.Version = 1
	enc := json.NewEncoder(j.w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		j.err = fmt.Errorf("write --json: %w", err)
	}
}

// finish says what came out.
func (t *training) finish(c train.Config, results []train.Result, dir string) error {
	if t.json {
		out := &jsonLines{on: true, w: t.deps.Out}
		for _, r := range results {
			final := map[string]float64{}
			for _, name := range []string{"val/pass@1", "val/pass@1_low", "val/pass@1_high", "val/random", "reward/mean"} {
				if v, ok := r.Final(name); ok {
					final[name] = v
				}
			}
			out.write(event{Event: "done", Run: r.Run, Dir: r.Dir, Metrics: final})
		}
		return out.err
	}
	var b strings.Builder
	if len(results) == 1 {
		b.WriteString(single(results[0]))
	} else {
		b.WriteString(c.Ablation.Compare(results))
	}
	fmt.Fprintf(&b, "report: %s\n", filepath.Join(dir, train.ReportFile))
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
	return text + "\n"
}
