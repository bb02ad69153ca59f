package rlcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/rl/metrics"
	"deepswe/rl/pages"
	"deepswe/rl/train"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/lab"
	"deepswe/rl/train/part"
	"deepswe/rl/train/recipe"
	"deepswe/rl/train/record"
)

// training is one run of the command.
type training struct {
	deps  Deps
	lines *cli.JSONLines

	config, out, metricsAddr string
	trackio, mlflow, wandb   string
	set                      []string
	diff                     string
	dryRun, resume, json     bool
	simulate                 bool
	measured                 string
	form                     string
	nodes, gpus              int
}

const trainLong = `Train a policy by reinforcement learning: sample tasks, roll out groups, turn
rewards into advantages and token rows, update the policy, publish it, and
evaluate it periodically. With objective: sft in the configuration, fine-tune it
on examples that deepswe export wrote: rollouts that solved their task, or the
training set of a verifier.

The configuration is YAML: a file's, or a bundled one:
  %s
A name without a slash and without an extension is a bundled one
where there is one of that name; ./NAME is always a file. rl/train/README.md
documents every key and its default; --dry-run prints the whole configuration,
and --diff what differs in another one.

A run has a directory: metrics as JSON lines and as TensorBoard event files,
checkpoints, and report.html with the curves. A run that was stopped or killed
goes on with --resume, with the same steps that it would have taken.

--simulate plays the loop of the configuration, with its tasks, workers, gates
and staleness, while replies, tools, gradings and updates only take time (the
section simulate says how much): what a cluster needs, before one is rented.
With --nodes, servers and sizes are those of --print; with --measured, the times
are those of a run of yours, and the section says only what differs.

--print writes what starts the run with its servers (Postgres, SkyRL, vLLM) on
--nodes with --gpus each, of 80 GB: a file for Docker Compose, a job for Slurm,
or manifests for Kubernetes, with the configuration in it.

A configuration with an ablation makes one run for each variant and seed, and
compares them in one report.`

const trainExample = `  deepswe train --config frozenlake
  deepswe train --config frozenlake --set algorithm.preset=grpo --out grpo
  deepswe train --config sft --set sft.rows=sft.jsonl \
      --set trainer.base_url=http://127.0.0.1:8000 --set trainer.model=MODEL
  deepswe train --config ./mine.yaml --simulate --set rollouts.max_staleness=2
  deepswe train --config deepswe-32b --print kubernetes --nodes 8 --gpus 8
  deepswe train --config ./mine.yaml --set filter.max_steps=drop --dry-run
  deepswe train --config deepswe-32b --diff swe-master
  deepswe train --resume --out grpo --metrics-addr 127.0.0.1:9100`

func newTrain(d Deps) *cobra.Command {
	t := &training{deps: d, lines: cli.NewJSONLines(d.Out)}
	c := &cobra.Command{
		Use:     "train --config NAME|FILE",
		Short:   "Train a policy: by reinforcement learning, or on examples",
		Long:    fmt.Sprintf(trainLong, strings.Join(t.bundled(), "\n  ")),
		Example: trainExample,
		Args:    cli.NoArgs("--config"),
		RunE:    func(c *cobra.Command, _ []string) error { return t.execute(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&t.config, "config", "", "bundled configuration `NAME`, a file, or -; by default that of the resumed run")
	f.StringVar(&t.out, "out", "", "keep the run in `DIR` (default: the configuration's name below the state directory)")
	f.StringArrayVar(&t.set, "set", nil, "change `KEY=VALUE`: optimizer.learning_rate, or a switch of the algorithm")
	f.BoolVar(&t.dryRun, "dry-run", false, "print the complete configuration and stop")
	f.StringVar(&t.diff, "diff", "", "print what differs in the configuration `NAME`, a file's or a bundled one, and stop")
	f.BoolVar(&t.simulate, "simulate", false, "play the loop on a simulated cluster, and print what it needs")
	f.StringVar(&t.measured, "measured", "", "with --simulate: with the times of the run in `DIR`")
	f.StringVar(&t.form, "print", "", "write what starts the run with its servers: "+strings.Join(recipe.Kinds(), ", "))
	f.IntVar(&t.nodes, "nodes", 0, "with --print or --simulate: on `N` nodes with GPUs (default of --print: 1)")
	f.IntVar(&t.gpus, "gpus", 8, "with --nodes: `N` GPUs of 80 GB on each node")
	f.BoolVar(&t.resume, "resume", false, "go on with the run in the directory")
	f.BoolVar(&t.json, "json", false, "print JSON lines on stdout: one for each step, one at the end of each run")
	f.StringVar(&t.metricsAddr, "metrics-addr", "", "serve /metrics for Prometheus, report and rollouts at `ADDRESS`")
	f.StringVar(&t.trackio, "trackio", "", "send the metrics to the Trackio server at `URL`, too")
	f.StringVar(&t.mlflow, "mlflow", "", "send the metrics to the MLflow server at `URL`, too")
	f.StringVar(&t.wandb, "wandb", "", "keep the metrics in `DIR` for \"wandb sync\", too")
	// It fails for an unknown flag only.
	cli.Choices(c, "print", recipe.Kinds()...)
	for _, flag := range []string{"config", "diff"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(t.bundled(), cobra.ShellCompDirectiveDefault))
	}
	return c
}

func (t *training) execute(ctx context.Context) error {
	c, err := t.load()
	if err != nil {
		return cli.Usage(err)
	}
	if t.diff != "" {
		return t.difference(c)
	}
	if t.dryRun {
		text, err := c.YAML()
		if err != nil {
			return err
		}
		_, err = t.deps.Out.Write(text)
		return err
	}
	if t.form != "" {
		return cli.Usage(t.recipe(c))
	}
	if t.simulate {
		return t.simulated(ctx, c)
	}
	if t.measured != "" {
		return cli.Usagef("--measured requires --simulate")
	}
	dir := t.out
	if dir == "" {
		dir = t.deps.RunDir(run.PathName(c.Name))
	}
	page := metrics.NewPrometheus()
	o := train.Options{Dir: dir, Resume: t.resume, World: t.deps.World}
	if o.Metrics, err = t.targets(page); err != nil {
		return cli.Usage(err)
	}
	stop, err := t.serve(page, dir)
	if err != nil {
		return cli.Usage(err)
	}
	if t.deps.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	results, err := t.watched(ctx, c, o)
	err = errors.Join(err, stop())
	switch {
	case errors.Is(err, run.ErrInterrupted):
		fmt.Fprintf(t.deps.Err, "stopped; go on with: deepswe train --resume --out %s\n", dir)
		return err
	case errors.Is(err, run.ErrExists), errors.Is(err, fs.ErrNotExist), errors.Is(err, run.ErrLocked),
		errors.Is(err, run.ErrOther), errors.Is(err, record.ErrOtherConfig), errors.Is(err, part.ErrTasks):
		return cli.Usage(err)
	case err != nil:
		if run.Exists(dir) {
			fmt.Fprintf(t.deps.Err, "finished work is kept; once the cause is fixed, go on with: "+
				"deepswe train --resume --out %s\n", dir)
		}
		return err
	}
	return t.finish(c, results, dir)
}

// targets are where the flags send the metrics.
func (t *training) targets(page *metrics.Prometheus) (all []metrics.Target, err error) {
	add := func(flag, value string, open func() (metrics.Target, error)) {
		if value == "" {
			return
		}
		target, wrong := open()
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("--%s: %w", flag, wrong))
		}
		all = append(all, target)
	}
	add("metrics-addr", t.metricsAddr, func() (metrics.Target, error) { return page.Target(), nil })
	add("trackio", t.trackio, func() (metrics.Target, error) {
		return metrics.Trackio(t.trackio, t.deps.Getenv("TRACKIO_WRITE_TOKEN"))
	})
	add("mlflow", t.mlflow, func() (metrics.Target, error) { return metrics.MLflow(t.mlflow, t.deps.Getenv) })
	add("wandb", t.wandb, func() (metrics.Target, error) { return metrics.WandB(t.wandb), nil })
	return all, err
}

// recipe writes what starts the run with its servers.
func (t *training) recipe(c config.Config) error {
	if !slices.Contains(recipe.Kinds(), t.form) {
		return fmt.Errorf("invalid --print %q: choose %s", t.form, strings.Join(recipe.Kinds(), ", "))
	}
	r, c, err := t.planned(c)
	if err != nil {
		return fmt.Errorf("--print: %w", err)
	}
	return r.Write(t.deps.Out, c)
}

// planned returns the recipe for the nodes, and the configuration with the settings that it needs.
func (t *training) planned(c config.Config) (*recipe.Recipe, config.Config, error) {
	if t.nodes < 0 || t.gpus < 1 {
		return nil, c, fmt.Errorf("%d nodes with %d GPUs: want 1 or more of each", t.nodes, t.gpus)
	}
	r, err := recipe.New(cmp.Or(t.form, recipe.Kubernetes), c, cmp.Or(t.nodes, 1), t.gpus)
	if err != nil {
		return nil, c, err
	}
	text, err := c.YAML()
	if err != nil {
		return nil, c, err
	}
	c, err = config.Load(text, builtin.Parts(), r.Settings()...)
	return r, c, err
}

// simulated prints what a cluster for the configuration needs.
func (t *training) simulated(ctx context.Context, c config.Config) (err error) {
	if t.nodes > 0 {
		if _, c, err = t.planned(c); err != nil {
			return cli.Usage(fmt.Errorf("--nodes: %w", err))
		}
	}
	if c.Objective == config.Imitation {
		return cli.Usagef("--simulate is about rollouts, and objective %s has none", c.Objective)
	}
	var m *lab.Measured
	if t.measured != "" {
		if m, err = lab.ReadMeasured(t.measured); err != nil {
			return cli.Usage(fmt.Errorf("--measured: %w", err))
		}
	}
	s, err := lab.Simulate(ctx, c, m)
	if err == nil {
		_, err = io.WriteString(t.deps.Out, s.String())
	}
	if err == nil && t.nodes > 0 {
		_, err = fmt.Fprintf(t.deps.Out, "%-24s%.1f\n", "GPU-hours a step", s.Step.Hours()*float64(t.nodes*t.gpus))
	}
	return err
}

// gcPercent starts a garbage collection when the heap has grown by a third, rather than doubled. Rollouts stay in
// memory for a long time: with 512 of them under way and 32k tokens each, a run needs a third less memory. No
// difference in processor time could be measured.
const gcPercent = 35

// watched trains and shows how it goes: on a terminal, in a log, or to a program.
func (t *training) watched(ctx context.Context, c config.Config, o train.Options) ([]train.Result, error) {
	shown := newView(cli.ScreenOf(t.deps.Err), time.Now)
	o.Observer = func(run string, steps int) train.Observer {
		return &audience{run: run, view: shown.run(run, steps), print: t.print}
	}
	var results []train.Result
	var err error
	if c.Ablation != nil {
		results, err = lab.Ablate(ctx, c, o)
	} else {
		results = make([]train.Result, 1)
		results[0], err = train.Start(ctx, c, o)
	}
	_ = shown.Close(true) // a screen that went away is not an error: the run did not need it
	return results, errors.Join(err, t.printed())
}

// serve offers metrics and report over HTTP while the run lasts. stop ends it and waits for it.
func (t *training) serve(page *metrics.Prometheus, dir string) (stop func() error, err error) {
	if t.metricsAddr == "" {
		return func() error { return nil }, nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", page)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(dir, record.ReportFile))
	})
	browse, err := pages.New(pages.Options{Paths: []string{dir}, Base: "/runs"})
	if err != nil {
		return nil, err
	}
	mux.Handle("/runs/", http.StripPrefix("/runs", browse))
	at, stop, err := cli.Serve(t.metricsAddr, mux)
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr: %w", err)
	}
	fmt.Fprintf(t.deps.Err, "metrics: http://%[1]s/metrics, report: http://%[1]s/, rollouts: http://%[1]s/runs/\n", at)
	return stop, nil
}
