package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent"
	"deepswe/env"
	"deepswe/env/repo"
)

// VerifierFlags are the flags for selecting one of several attempts. The verifiers themselves are in verify/rank.
type VerifierFlags struct {
	// Verifier is none, free, exec or hybrid.
	Verifier string
	Top      int

	JudgeModel   string
	JudgeURL     string
	JudgeContext int
	JudgeSamples int
	JudgePack    string

	// Command and Parser run the repository's own tests; Written is how many times an agent writes further tests.
	Command string
	Parser  string
	Timeout time.Duration
	Written int

	optional bool
}

var verifiers = []string{"none", "free", "exec", "hybrid"}

// Add adds the flags to a command. without is the default of --verifier; if it is empty, nothing is selected unless
// the flag is given.
func (o *VerifierFlags) Add(cmd *cobra.Command, without string) {
	o.optional = without == ""
	f := cmd.Flags()
	f.StringVar(&o.Verifier, "verifier", without,
		"choose by `V`: none (agreement), free (a judge model), exec (tests) or hybrid (both)")
	f.IntVar(&o.Top, "top", 0, "hybrid: choose among the `N` best patches by score (0: half of all, at least three)")
	f.StringVar(&o.JudgeModel, "judge-model", "", "`NAME` of the judge model (default: the model judges itself)")
	f.StringVar(&o.JudgeURL, "judge-url", "", "`URL` of the judge's endpoint (default: the model's)")
	f.Var((*tokens)(&o.JudgeContext), "judge-context",
		"condense to `N` tokens (as 65536 or 64k) for the judge (default: what its endpoint has)")
	f.IntVar(&o.JudgeSamples, "judge-samples", 8, "answers to sample where the judge's endpoint gives no logprobs")
	f.StringVar(&o.JudgePack, "judge-pack", "", "what the judge is told, from the YAML `FILE`")
	if f.Lookup("test") == nil { // solve has it already
		f.StringVar(&o.Command, "test", "", "run the repository's tests with `CMD` (default: found in the repository)")
	}
	f.StringVar(&o.Parser, "test-parser", "", "`NAME` of the parser for the output of --test")
	f.DurationVar(&o.Timeout, "test-timeout", 0, "longest `TIME` for a run of tests (default: the task's own, or 30m)")
	f.IntVar(&o.Written, "write-tests", 4, "let the agent write tests for the issue `N` times (0: not at all)")
	Choices(cmd, "verifier", verifiers...)
}

// Check validates the flags without opening anything.
func (o *VerifierFlags) Check() error {
	switch {
	case !slices.Contains(verifiers, o.Verifier) && (o.Verifier != "" || !o.optional):
		return Usagef("invalid --verifier %q: choose %s", o.Verifier, strings.Join(verifiers, ", "))
	case o.Top < 0 || o.JudgeContext < 0 || o.Written < 0:
		return Usagef("--top, --judge-context and --write-tests must not be negative")
	case o.JudgeSamples < 1:
		return Usagef("--judge-samples must be at least 1")
	case o.Timeout < 0:
		return Usagef("--test-timeout must not be negative")
	case (o.Command == "") != (o.Parser == ""):
		return Usagef("--test and --test-parser require each other")
	}
	return nil
}

// Judges reports whether the verifier uses scores of a judge model.
func (o *VerifierFlags) Judges() bool { return o.Verifier == "free" || o.Verifier == "hybrid" }

// Tests reports whether the verifier uses tests.
func (o *VerifierFlags) Tests() bool { return o.Verifier == "exec" || o.Verifier == "hybrid" }

// OpenJudge opens the judge. Without flags for it, the judge is model, which then judges its own work, and self is
// true. The API key of a separate endpoint is DEEPSWE_JUDGE_API_KEY or, if that is empty, OPENAI_API_KEY.
func (o *VerifierFlags) OpenJudge(ctx context.Context, w World, model *LiveModel, main *ModelFlags) (
	judge LiveModel, self bool, err error,
) {
	if o.JudgeURL == "" && o.JudgeModel == "" && model != nil {
		return *model, true, nil
	}
	c, err := w.LoadConfig()
	if err != nil {
		return LiveModel{}, false, err
	}
	choice := w.ResolveModel(c, main.BaseURL, main.Name)
	if o.JudgeURL != "" {
		choice = ModelChoice{BaseURL: o.JudgeURL, APIKey: choice.APIKey}
	}
	choice.Model = cmp.Or(o.JudgeModel, choice.Model)
	choice.APIKey = cmp.Or(w.Getenv("DEEPSWE_JUDGE_API_KEY"), choice.APIKey)
	words := []string{
		"OPENAI_API_KEY", "DEEPSWE_JUDGE_API_KEY", "--model or DEEPSWE_MODEL", "--judge-model", "--model", "--judge-model",
	}
	if o.JudgeURL != "" {
		words = append(words, "--base-url", "--judge-url")
	}
	choice.Hints = strings.NewReplacer(words...)
	judge, err = w.openEndpoint(ctx, choice)
	return judge, o.JudgeURL == "" && o.JudgeModel == "", err
}

// Race is several attempts at one task, of which verifiers select one.
type Race struct {
	World World
	// K attempts are played at once. Play plays one in the run's directory and returns its entry. An error is an
	// infrastructure failure; that attempt is not a candidate.
	K    int
	Play func(ctx context.Context, attempt int) (RaceEntry, error)
	// Task, Snapshot and Provider are for testing the candidates; Dir is the run's directory.
	Task     env.Task
	Snapshot *repo.Snapshot
	Provider env.Provider
	Dir      string
	Verifier *VerifierFlags
	Model    LiveModel
	Flags    *ModelFlags
	// Say reports progress to the user.
	Say func(text string)
}

// RaceEntry is a finished attempt: the paths of its files, which need not exist, and how it ended.
type RaceEntry struct {
	PatchFile, Trajectory string
	StopReason            agent.StopReason
}

// RaceResult is the outcome of the selection.
type RaceResult struct {
	// Winner is the selected attempt, or -1 if no attempt has ended; Reason explains the selection.
	Winner int    `json:"winner"`
	Reason string `json:"reason"`
	// Losers explains why the other attempts were not selected. Ended is the number of attempts that have ended, out of
	// Attempts.
	Losers   map[int]string `json:"losers,omitempty"`
	Attempts int            `json:"attempts"`
	Ended    int            `json:"ended"`
	// Tests is how the ranking's tests went on the selected patch; nil if none was to be run.
	Tests *RaceTests `json:"tests,omitempty"`
	// Report is the path of the HTML report.
	Report string `json:"report,omitempty"`
}

// RaceTests is how the tests of a ranking went on a patch.
type RaceTests struct {
	// Regression counts the tests that pass without the patch, Reproduction those written for the issue, which fail
	// without it.
	Regression   RaceCount `json:"regression"`
	Reproduction RaceCount `json:"reproduction"`
	// Problem is why the results say nothing: the patch does not apply or forges them, or there are none.
	Problem string `json:"problem,omitempty"`
}

// Breaks reports whether tests fail that pass without the patch.
func (t RaceTests) Breaks() bool { return t.Problem == "" && t.Regression.Passed < t.Regression.Tests }

// RaceCount counts tests. Failed names the first of those that do not pass.
type RaceCount struct {
	Tests  int      `json:"tests"`
	Passed int      `json:"passed"`
	Failed []string `json:"failed,omitempty"`
}
