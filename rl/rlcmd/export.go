package rlcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/env/disk"
	"deepswe/rl"
	"deepswe/rl/rowfile"
	"deepswe/rl/train/record"
)

// export is one run of the command.
type export struct {
	deps Deps

	rollouts, run, format, algorithm, out string
	maxLength                             int
	set                                   []string
	sftForm                               string
	minReward                             float64
	dryRun, archive                       bool
	judge                                 judgeOptions
	weights                               weightsOptions
}

const exportLong = `Turn rollouts into the data that a trainer reads, or take trained weights out.

  rows      rows.jsonl: token rows with mask, logprobs, advantage and share of
            the loss
  sft       rejection fine-tuning: rollouts that solved their task, as labelled
            tokens or as chat messages; turns with a format error are masked
  atropos   a group a line, as POST /scored_data of an Atropos server takes it
  verifier  the training set of a judge (see rank --help): conversations about
            graded attempts of a run of eval, with the right answer; as many YES
            as NO for each task, and none for a task of an evaluation set
  adapter   the LoRA adapter of a training run's last checkpoint, as a folder
            that vLLM and PEFT load, fetched from the run's Tinker server
  model     the adapter merged into its base, as deepswe merge does

Rollouts are read from a file (rollouts.jsonl, zstd or not, or - for stdin) or
from the directory of a run. Both formats are documented in rl/README.md. A
rollout that cannot be learned from exactly is refused with its line and field;
nothing is guessed.

--archive writes the whole directory of the run as one file instead, the same
bytes for the same files, which view reads: for publishing.

The verifier's examples are made of a run's trajectories and patches. Tasks of
the repositories of SWE-bench are left out, and so are those of --eval-set.`

const exportExample = `  deepswe export --rollouts r.jsonl --max-length 32768 --out rows.jsonl.zst
  deepswe export --run verified --algorithm dapo --max-length 32768 \
      --set overlong.max=20480 --set overlong.cache=4096
  deepswe export --rollouts rollouts.jsonl --format sft --out sft.jsonl
  deepswe export --run collected --format verifier --eval-set heldout.jsonl \
      --out judge.jsonl
  deepswe export --run fixer --format model --base Qwen3-8B --out fixer-8b
  deepswe export --run verified --archive --out verified.tar.zst`

func newExport(d Deps) *cobra.Command {
	x := &export{deps: d}
	c := &cobra.Command{
		Use:     "export (--rollouts FILE | --run DIR) --format FORMAT",
		Short:   "Write rollouts, or trained weights, for other programs",
		Long:    exportLong,
		Example: exportExample,
		Args:    cli.NoArgs("--rollouts", "--run"),
		RunE: func(c *cobra.Command, _ []string) error {
			err := x.execute(c.Context(), c.Flags().Changed)
			if _, ok := errors.AsType[*rl.FieldError](err); ok {
				return cli.Usage(err)
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&x.rollouts, "rollouts", "", "read rollouts from `FILE`, - for stdin")
	f.StringVar(&x.run, "run", "", "read the rollouts of the run in `DIR`")
	f.StringVar(&x.format, "format", "rows", "`FORMAT` to write: rows, sft, atropos, verifier, adapter or model")
	f.StringVar(&x.out, "out", "-", "`PATH` to write, compressed where it ends in .zst; - for stdout")
	f.StringVar(&x.algorithm, "algorithm", rl.DefaultPreset, "`PRESET`: "+strings.Join(rl.Presets(), ", "))
	f.IntVar(&x.maxLength, "max-length", 0, "most `TOKENS` of a row, and W of the constant length; 0 does not limit")
	f.StringArrayVar(&x.set, "set", nil, "change a switch of the preset, `KEY=VALUE`; --dry-run lists them")
	f.BoolVar(&x.dryRun, "dry-run", false, "print the algorithm with all its switches and stop")
	f.StringVar(&x.sftForm, "sft-form", string(rowfile.SFTAuto), "sft: `FORM` of the lines: auto, tokens or messages")
	f.Float64Var(&x.minReward, "min-reward", 1, "sft: minimum reward to export")
	f.BoolVar(&x.archive, "archive", false, "write the whole directory of the run as an archive, a .tar.zst")
	for _, other := range []string{"format", "rollouts", "algorithm", "max-length", "set", "dry-run", "sft-form"} {
		c.MarkFlagsMutuallyExclusive("archive", other)
	}
	x.judge.add(f)
	x.weights.add(f)
	cli.Choices(c, "format", "rows", "sft", "atropos", "verifier", "adapter", "model")
	cli.Choices(c, "algorithm", rl.Presets()...)
	cli.Choices(c, "sft-form", "auto", "tokens", "messages")
	return c
}

func (x *export) execute(ctx context.Context, changed func(string) bool) error {
	if x.archive {
		return x.pack()
	}
	switch x.format {
	case "verifier":
		return x.verifier(ctx, changed)
	case "adapter", "model":
		return x.writeWeights(ctx, changed)
	}
	if !x.dryRun && (x.rollouts == "") == (x.run == "") {
		return cli.Usagef("export reads either --rollouts FILE or --run DIR")
	}
	a, err := x.resolve(changed)
	if err != nil {
		return cli.Usage(err)
	}
	if x.dryRun {
		_, err := io.WriteString(x.deps.Out, a.String())
		return err
	}
	var src *rowfile.Source
	if x.run != "" {
		src, err = record.OpenRollouts(x.run)
	} else {
		src, err = rowfile.Open(x.deps.In, x.rollouts)
	}
	if err != nil {
		return cli.Usage(err)
	}
	defer src.Close()
	return x.write(func(w io.Writer) error { return x.convert(ctx, w, src, a) })
}

// pack writes the run's directory as an archive.
func (x *export) pack() error {
	if x.run == "" {
		return cli.Usagef("--archive requires --run DIR")
	}
	if x.out == "-" {
		return run.Pack(x.deps.Out, x.run)
	}
	if !strings.HasSuffix(x.out, run.ArchiveEnding) {
		return cli.Usagef("--out %s: the name of an archive ends in %s", x.out, run.ArchiveEnding)
	}
	return cli.Usage(disk.WriteStream(x.out, func(w io.Writer) error { return run.Pack(w, x.run) }))
}

// resolve makes the algorithm of the flags, and refuses flags that the format has no use for.
func (x *export) resolve(changed func(string) bool) (rl.Algorithm, error) {
	if err := x.applies(changed); err != nil {
		return rl.Algorithm{}, err
	}
	a, err := rl.Preset(x.algorithm)
	if err != nil {
		return a, fmt.Errorf("--algorithm: %w", err)
	}
	a.MaxLength = x.maxLength
	for _, s := range x.set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return a, fmt.Errorf("--set %s: want KEY=VALUE, as in filter.max_steps=mask", s)
		}
		if err := a.Set(key, value); err != nil {
			return a, fmt.Errorf("--set %w", err)
		}
	}
	switch {
	case x.maxLength < 0:
		return a, fmt.Errorf("--max-length is %d; it must be positive, or 0 for no limit", x.maxLength)
	case x.format == "sft":
		return a, nil
	}
	return a, a.Check()
}

// applies refuses flags that the format has no use for.
func (x *export) applies(changed func(string) bool) error {
	algorithm := []string{"algorithm", "set", "dry-run"}
	judge := []string{"tasks", "eval-set", "judge-pack"}
	rollouts := []string{"sft-form", "min-reward"}
	trained := []string{"base", "base-name", "trainer-url", "push", "hub"}
	rows := slices.Concat(rollouts, judge, trained)
	weights := slices.Concat(algorithm, rollouts, judge, []string{"rollouts", "max-length"})
	unused := map[string][]string{
		"rows": rows, "atropos": rows, "adapter": weights, "model": weights,
		"sft":      slices.Concat(algorithm, judge, trained),
		"verifier": slices.Concat(algorithm, rollouts, trained, []string{"rollouts"}),
	}
	flags, ok := unused[x.format]
	if !ok {
		return fmt.Errorf("invalid --format %q: choose rows, sft, atropos, verifier, adapter, model", x.format)
	}
	for _, f := range flags {
		if changed(f) {
			return fmt.Errorf("--%s does not apply to --format %s", f, x.format)
		}
	}
	return nil
}

// write calls do with the writer of the output. A file appears only once do has succeeded.
func (x *export) write(do func(w io.Writer) error) (err error) {
	if x.out == "-" {
		w := bufio.NewWriterSize(x.deps.Out, 1<<20)
		if err := do(w); err != nil {
			return err
		}
		return w.Flush()
	}
	begun := false
	err = rowfile.Create(x.out, func(w io.Writer) error {
		begun = true
		return do(w)
	})
	if err != nil && !begun {
		return cli.Usage(err)
	}
	return err
}

func (x *export) convert(ctx context.Context, w io.Writer, src *rowfile.Source, a rl.Algorithm) error {
	if x.format == "sft" {
		rep, err := rowfile.ExportSFT(ctx, w, src, rowfile.SFT{
			Form: rowfile.SFTForm(x.sftForm), MinReward: x.minReward, MaxLength: x.maxLength,
		})
		if err == nil {
			x.reportSFT(rep)
		}
		return err
	}
	write := rowfile.ExportRows
	if x.format == "atropos" {
		write = rowfile.ExportAtropos
	}
	b, err := write(ctx, w, src, a)
	if err == nil {
		x.report(b, a)
	}
	return err
}

func (x *export) say(format string, args ...any) { fmt.Fprintf(x.deps.Err, format+"\n", args...) }

// report prints how many rollouts were exported, and above all why others were not.
func (x *export) report(b rl.Batch, a rl.Algorithm) {
	s := b.Shape
	x.say("%d rollouts in %d groups: %d trained, %d masked, %d without a reward, %d dropped by the filter, "+
		"%d with their group", b.Rollouts, b.Groups.Total, b.Dispositions[rl.Trained], b.Dispositions[rl.Masked],
		b.Dispositions[rl.NoReward], b.Dispositions[rl.Filtered],
		b.Dispositions[rl.SmallGroup]+b.Dispositions[rl.UniformGroup])
	for _, m := range []struct {
		what  string
		stops map[agent.StopReason]int
	}{{"masked", b.MaskedStops}, {"dropped", b.DroppedStops}} {
		for _, r := range slices.Sorted(maps.Keys(m.stops)) {
			x.say("  %s for %s: %d", m.what, r, m.stops[r])
		}
	}
	x.say("groups: %d solved by none, %d by some, %d by all; %d uniform, %d with one member, %d with something to learn",
		b.Groups.SolveNone, b.Groups.SolvePartial, b.Groups.SolveAll, b.Groups.Uniform, b.Groups.Singletons,
		b.Groups.Effective)
	x.say("%d rows, %d trained tokens, mean reward %.4g", s.Rows, b.TrainedTokens, b.Reward.Mean())
	if n := s.Splits.Total(); n > 0 {
		x.say("%d turns could not extend their row: prompt shorter than the row %d, differs within the last prompt %d, "+
			"within the last completion %d", n, s.Splits.PromptShorter, s.Splits.PromptDiverges, s.Splits.CompletionDiverges)
	}
	if s.TruncatedRows > 0 {
		x.say("warning: %d rows were longer than %d tokens and lost %d tokens at their end "+
			"(overflow=refuse makes this an error)", s.TruncatedRows, a.MaxLength, s.TruncatedTokens)
	}
	if s.ZeroLogprobs > 0 {
		x.say("warning: the logprobs of %d turns are all 0: did the server send any?", s.ZeroLogprobs)
	}
	if b.Duplicates > 0 {
		x.say("warning: %d rollouts have the task, group and attempt of an earlier one", b.Duplicates)
	}
	for _, r := range slices.Sorted(maps.Keys(a.Filter)) {
		if b.Stops[r] == 0 && !slices.Contains(trajectory.StopReasons(), r) {
			x.say("warning: no rollout stopped for %q, which filter.%s names", r, r)
		}
	}
}

func (x *export) reportSFT(r rowfile.SFTReport) {
	x.say("%d of %d rollouts solved their task: %d lines of %s", r.Successes, r.Rollouts, r.Lines, r.Form)
	if r.MaskedTurns > 0 {
		x.say("%d turns with a format error are not trained", r.MaskedTurns)
	}
	if r.TruncatedRows > 0 {
		x.say("warning: %d rows were longer than %d tokens and lost their end", r.TruncatedRows, x.maxLength)
	}
}
