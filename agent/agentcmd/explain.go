package agentcmd

import (
	"fmt"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
)

// explain says in a sentence why a rollout ended as it did and what can be done about it; empty where the stop reason or
// an error says it all.
func explain(r attempt.Result, l agent.Limits) string {
	out := r.Outcome
	window := "the model's context"
	if l.Context > 0 {
		window = fmt.Sprintf("the context of %d tokens", l.Context)
	}
	switch out.StopReason {
	case agent.MaxSteps:
		return fmt.Sprintf("the limit of %s is reached; --max-steps allows more", cli.Plural(l.Steps, "step"))
	case agent.MaxContext:
		if out.Steps == 0 {
			return fmt.Sprintf("the prompt alone does not fit into %s: serve the model with a longer one, or shorten the issue", window)
		}
		return fmt.Sprintf("the conversation has filled %s; --context and what the endpoint serves bound it", window)
	case agent.Timeout:
		return fmt.Sprintf("%s are over; --timeout allows more", l.Wall)
	case agent.FormatErrors:
		return fmt.Sprintf("the last replies held no call that can be run; if the model speaks another format than %s, say --format", out.Format)
	case agent.Stuck:
		return "the model went in circles: the same calls with the same results, again and again"
	case agent.Submitted:
		switch {
		case r.PatchErr != nil || len(r.Patch.Diff) > 0:
		case r.Patch.Ignored > 0:
			return fmt.Sprintf("the only changes are %d new files that .gitignore leaves out", r.Patch.Ignored)
		case len(r.Patch.Omitted) == 0:
			return "the agent submitted without having changed a file"
		}
	}
	return ""
}

// stopCode is the exit code of a finished rollout.
func stopCode(stop agent.StopReason, patched bool) int {
	switch stop {
	case agent.Interrupted:
		return cli.ExitInterrupted
	case agent.ModelError:
		return cli.ExitModel
	case agent.SandboxError:
		return cli.ExitSandbox
	case agent.Submitted:
		if patched {
			return cli.ExitDone
		}
		return cli.ExitUnsolved
	default:
		if patched {
			return cli.ExitLimit
		}
		return cli.ExitUnsolved
	}
}
