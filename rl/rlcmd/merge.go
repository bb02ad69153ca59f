package rlcmd

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/rl/weights"
)

const mergeLong = `Merge a LoRA adapter into a copy of its base model, as a folder that vLLM and
transformers load.

The base is a folder with config.json and safetensors. The adapter is a folder
with adapter_config.json and adapter_model.safetensors, as trainers write them,
or a tar.gz of the two: a training run that samples from vLLM keeps its newest
one in checkpoints/adapters, and a Tinker server hands out archives.

The sum is computed in float32 and rounded to the type of each weight. A key of
the adapter that cannot be placed is an error, and then nothing is written. In
bfloat16 most of what a short training changes is smaller than the rounding: the
share of numbers that changed is printed, and --dtype float32 keeps all of it.

--push takes the folder to a hub that speaks the API of Hugging Face, with the
token in HF_TOKEN; a new repository is private. Without --base and --adapter it
takes a folder that is there: where a push broke off, it goes on.`

// few is the share of changed numbers below which the merged model may be little more than its base.
const few = 0.01

func newMerge(d Deps) *cobra.Command {
	var o weights.Options
	var push pushOptions
	var dtype string
	var asJSON bool
	c := &cobra.Command{
		Use:   "merge --base DIR --adapter PATH --out DIR",
		Short: "Merge an adapter into its base model",
		Long:  mergeLong,
		Example: "  deepswe merge --base Qwen3-8B --adapter adapter.tar.gz --out fixer\n" +
			"  deepswe merge --out fixer --push acme/fixer --hub https://huggingface.co",
		Args: cli.NoArgs("--base", "--adapter", "--out"),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := push.check(d); err != nil {
				return cli.Usage(err)
			}
			if push.name != "" && o.Base == "" && o.Adapter == "" && o.Out != "" {
				return push.send(c.Context(), d, o.Out)
			}
			for flag, value := range map[string]string{"base": o.Base, "adapter": o.Adapter, "out": o.Out} {
				if value == "" {
					return cli.Usagef("merge needs --base, --adapter and --out; --%s is missing", flag)
				}
			}
			var ok bool
			if o.DType, ok = dtypes[dtype]; !ok {
				return cli.Usagef("invalid --dtype %q: want keep, float32 or bfloat16", dtype)
			}
			if err := merge(c.Context(), d, o, asJSON); err != nil {
				return err
			}
			return push.send(c.Context(), d, o.Out)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Base, "base", "", "`DIR` of the base model")
	f.StringVar(&o.Adapter, "adapter", "", "`PATH` of the adapter, a folder or a tar.gz")
	f.StringVar(&o.Out, "out", "", "`DIR` to make")
	f.StringVar(&dtype, "dtype", "keep", "`TYPE` of the weights: keep, float32 or bfloat16")
	f.StringVar(&o.Card.Base, "base-name", "", "`NAME` of the base on a hub, for the model's page")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	push.add(f)
	cli.Choices(c, "dtype", "keep", "float32", "bfloat16")
	return c
}

var dtypes = map[string]weights.DType{"keep": "", "float32": weights.Float32, "bfloat16": weights.BFloat16}

type merged struct {
	Schema    string            `json:"schema"`
	Out       string            `json:"out"`
	Modules   int               `json:"modules"`
	Unchanged int               `json:"unchanged_modules"`
	Changed   float64           `json:"changed_share"`
	Untied    bool              `json:"untied"`
	Digests   map[string]string `json:"sha256"`
}

func merge(ctx context.Context, d Deps, o weights.Options, asJSON bool) error {
	r, err := weights.Merge(ctx, o)
	if err != nil {
		return err
	}
	if asJSON {
		m := merged{"deepswe.merge/1", o.Out, r.Modules, r.Unchanged, r.Share(), r.Untied, r.Digests}
		return json.NewEncoder(d.Out).Encode(m)
	}
	fmt.Fprintf(d.Out, "%s: %d weights changed, %d have zeros in the adapter; %.3g%% of the numbers differ\n",
		o.Out, r.Modules, r.Unchanged, 100*r.Share())
	if r.Untied {
		fmt.Fprintln(d.Err, "The output layer was shared with the embedding, and has weights of its own now.")
	}
	if r.Modules > 0 && r.Share() < few {
		fmt.Fprintln(d.Err, "Most of the change was lost in rounding. To keep it: --dtype float32, or serve the adapter.")
	}
	return nil
}
