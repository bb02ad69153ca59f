package verify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"deepswe/env"
	"deepswe/verify/harness"
	"deepswe/verify/testlog"
)

// EvaluationTimeout is the official harness's limit on a test run.
const EvaluationTimeout = 1800 * time.Second

// Evaluator grades patches by running tests in pristine sandboxes. Only the patch comes from the agent. Provider is
// required, every other field has a useful zero value. An Evaluator is safe for concurrent use.
type Evaluator struct {
	Provider env.Provider
	// Timeout limits the run of the tests; 0 means the task's own limit, or EvaluationTimeout if the task has none.
	Timeout time.Duration
	// Network gives all tests access to the network, not only those of tasks that ask for it.
	Network bool
	// Run is the name of the run, for labels.
	Run string
	// Training skips the trial that follows the official harness exactly, so that the first trial is a strict one.
	Training bool
	// Canary is the way in which a reward of 1 is confirmed.
	Canary CanaryMode
	// Evidence is the weakest evidence that a reward may have; if it is weaker, the task is void. The zero value
	// requires none. Without canaries, nothing is required either.
	Evidence Strength
	// Odds are the wanted odds against a patch that has to guess which tests are wrong: as many runs are made as it
	// takes to reach them, up to 8. 0 means [DefaultOdds]. [Confirmation.Odds] are the odds that were reached.
	Odds float64
	// Variants is N if the tests also run with other values in them (see [Variants]) for one in N patches with a reward;
	// 0 means for none.
	Variants int
	// Seed determines which tests are wrong, and how. 0 draws another one for each evaluation; any other number is for
	// patches whose authors do not try to guess, such as reference solutions.
	Seed uint64

	references sync.Map // of *reference, by the tasks' keys
	packages   sync.Map // of []string, the directories of Python's packages, by [environment]
	maxLog     int      // for tests; 0 means the constant of that name
}

// Status is the outcome of an evaluation.
type Status string

// The statuses. An infrastructure failure has no status, because it is an error.
const (
	Resolved    Status = "resolved"
	Unresolved  Status = "unresolved"
	NoPatch     Status = "no_patch"     // there was nothing to grade
	PatchFailed Status = "patch_failed" // the patch does not apply
	TimedOut    Status = "timed_out"
	Ungradable  Status = "ungradable" // see ErrUngradable
)

// Evaluation is the outcome of evaluating a patch.
type Evaluation struct {
	Task   string `json:"task"`
	Patch  string `json:"patch,omitempty"` // hex SHA-256
	Grader string `json:"grader"`
	Key    string `json:"key"` // see [Evaluator.Key]
	// Status follows the rules of the official harness, which ignore Suspicious.
	Status Status `json:"status"`
	// Reward follows the stricter rules. It is 1 or 0, or any number if the task's script gives the reward.
	Reward float64 `json:"reward"`
	// Void is set if the task itself is at fault, so that no patch can get a verdict.
	Void bool `json:"void,omitempty"`
	// Detail explains the status: git's message, the limit that was reached, or the reason of ErrUngradable.
	Detail     string      `json:"detail,omitempty"`
	Suspicious []Suspicion `json:"suspicious,omitempty"`
	// Withheld are the changes that the strict trial does not take. NeedsWithheld is set if the tests do not pass
	// without them.
	Withheld      []Withheld `json:"withheld,omitempty"`
	NeedsWithheld bool       `json:"needs_withheld,omitempty"`
	// InfraReason and InfraTier classify a failure of the environment that the logs show; see [harness.Classify].
	InfraReason string       `json:"infra_failure_reason,omitempty"`
	InfraTier   harness.Tier `json:"infra_failure_tier,omitempty"`
	// Fixed are the FAIL_TO_PASS tests that pass, Broken the PASS_TO_PASS tests that do not.
	Fixed  []string `json:"fixed,omitempty"`
	Broken []string `json:"broken,omitempty"`
	// Rewards are the rewards that the task's script has written, if it does so.
	Rewards Rewards `json:"rewards,omitempty"`
	// Mixed is set if the log is that of runs in which some tests were wrong.
	Mixed bool `json:"mixed,omitempty"`
	// Confirmation describes how a reward was confirmed; nil if the first run gave none.
	Confirmation *Confirmation `json:"confirmation,omitempty"`
	// Applied is the command that has applied the patch.
	Applied string  `json:"applied,omitempty"`
	Seconds float64 `json:"seconds"`
	// LogBytes is the length of the whole log, Network and Timeout are the settings of the test run.
	LogBytes int64   `json:"log_bytes"`
	Network  bool    `json:"network,omitempty"`
	Timeout  float64 `json:"timeout_seconds"`
	// OutOfMemory is set if the kernel killed a process of the sandbox for lack of memory while the tests ran.
	OutOfMemory bool `json:"out_of_memory,omitempty"`
	// OutOfDisk is set if the tests were ended because they exceeded the sandbox's disk limit. Reward is 0 then.
	OutOfDisk bool `json:"out_of_disk,omitempty"`

	// Report is the official harness's report; nil if it would write none.
	Report *harness.Report `json:"-"`
	// Tests are the tests in the log; nil if it was not parsed.
	Tests *testlog.Results `json:"-"`
	// Log is the output of the test script, StrictLog its output in the trials that confirm the reward.
	Log       []byte `json:"-"`
	StrictLog []byte `json:"-"`
}

// Infra returns the class of a failure of the environment that the logs show; nil if there is none.
func (v Evaluation) Infra() *harness.Infra {
	if v.InfraReason == "" {
		return nil
	}
	return &harness.Infra{Reason: v.InfraReason, Tier: v.InfraTier}
}

// Solved reports the stricter verdict.
func (v Evaluation) Solved() bool { return v.Reward >= 1 }

// Evaluate applies the patch in a fresh sandbox, runs the task's tests and grades their log, as the official harness
// would. A nil patch is a prediction without a patch. If the tests pass, they run again, without the changes that no
// fix needs (see [Withheld]), and with wrong tests among them, which must fail (see [Confirmation]). Reward is the
// verdict of all runs, everything else is about the first.
//
// An error is an infrastructure failure: there is no verdict, and the evaluation must be repeated.
func (e *Evaluator) Evaluate(ctx context.Context, t env.Task, patch []byte) (Evaluation, error) {
	began := time.Now()
	v, err := e.evaluate(ctx, t, patch)
	if err != nil {
		return Evaluation{}, fmt.Errorf("evaluate %s: %w", t.ID, err)
	}
	v.Seconds = time.Since(began).Seconds()
	return v, nil
}

func (e *Evaluator) evaluate(ctx context.Context, t env.Task, patch []byte) (Evaluation, error) {
	if patch == nil {
		v := e.newEvaluation(t, patch, e.limit(t))
		v.Status = NoPatch
		grade, err := GradeLog(t, Evidence{NoPatch: true})
		v.Report = &grade.Report
		return v, err
	}
	l := e.ladder(t, patch)
	err := l.climb(ctx, e.checks(t, patch))
	if err == nil && e.sampled(l) {
		err = l.vary(ctx)
	}
	return l.v, err
}

// ladder returns the ladder for a patch, before its first check.
func (e *Evaluator) ladder(t env.Task, patch []byte) *ladder {
	evidence := e.Evidence
	if e.Canary == CanaryNever {
		evidence = NoEvidence
	}
	return &ladder{
		run: e.runTrial, task: t, patch: patch, mode: e.Canary, evidence: evidence, odds: e.Odds, limit: e.limit(t),
		ref: e.reference(t), seed: e.draw(),
		c: &Confirmation{GoldUnknown: t.Tests.GoldPatch == "", Earned: []string{}, Evidence: NoEvidence},
	}
}

// draw returns the seed of one evaluation.
func (e *Evaluator) draw() uint64 { return cmp.Or(e.Seed, rand.Uint64()) }

func (e *Evaluator) limit(t env.Task) time.Duration {
	return cmp.Or(max(e.Timeout, 0), max(t.Tests.Timeout, 0), EvaluationTimeout)
}

func (e *Evaluator) newEvaluation(t env.Task, patch []byte, limit time.Duration) Evaluation {
	v := Evaluation{
		Task: t.ID, Grader: Grader, Key: e.Key(t, patch), Network: e.Network || t.Tests.Network, Timeout: limit.Seconds(),
	}
	if len(patch) > 0 {
		v.Patch = hashOf(patch)
	}
	return v
}

// Key identifies the evaluation of a patch. It changes with the patch, the version of the grader, the parts of the task
// that matter to grading, and the limits. A result with the same key may be reused.
func (e *Evaluator) Key(t env.Task, patch []byte) string {
	t.Prepare, t.Labels = nil, nil // the grader does not see them
	if t.Tests.RewardFile == "" {
		t.Statement = "" // nor does it see this
	}
	odds := e.Odds
	if odds == DefaultOdds {
		odds = 0
	}
	spelled, err := json.Marshal(struct {
		Task    env.Task
		Patch   string
		None    bool
		Grader  string
		Timeout time.Duration
		Network bool
		Limits  env.Limits // this and the next field are from older keys, which stay valid
		MaxLog  int
		// Fields that were added later, and are omitted at their zero value.
		Training bool       `json:",omitempty"`
		Canary   CanaryMode `json:",omitempty"`
		Evidence Strength   `json:",omitempty"`
		Odds     float64    `json:",omitempty"`
	}{
		Task: t, Patch: hashOf(patch), None: patch == nil, Grader: Grader, Timeout: e.Timeout, Network: e.Network,
		Training: e.Training, Canary: e.Canary, Evidence: e.Evidence, Odds: odds,
	})
	if err != nil {
		return "" // plain data can always be encoded
	}
	return hashOf(spelled)
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// EvaluateStrictly runs the tests only in strict trials, in which changes to the tests are withheld and some of them
// are wrong. It is for comparing patches by tests other than the task's own; maintained is set if these tests pass
// without any patch. The report says which tests pass, and Confirmation contains the result of the wrong ones. If the
// patch has manipulated the results, Suspicious says how. The error is an infrastructure failure.
func (e *Evaluator) EvaluateStrictly(
	ctx context.Context, t env.Task, patch []byte, maintained bool,
) (Evaluation, error) {
	began := time.Now()
	l := e.ladder(t, patch)
	l.comparing, l.maintained = true, maintained
	if err := l.mixed(ctx); err != nil {
		return Evaluation{}, fmt.Errorf("evaluate %s: %w", t.ID, err)
	}
	l.v.Confirmation = l.c
	l.v.Seconds = time.Since(began).Seconds()
	return l.v, nil
}

// Solution returns the files that a task's solution changes or adds, with the solution's content, by their paths in
// the repository. It leaves out those whose changes by a patch are withheld, because the strict trial uses the
// solution's version of them in any case. If the solution does not apply, there are none.
//
// An error is an infrastructure failure.
func (e *Evaluator) Solution(ctx context.Context, t env.Task) (files map[string][]byte, err error) {
	one := &trial{task: t, patch: []byte(t.Tests.GoldPatch), limit: e.limit(t), strict: true}
	e.beginTrial(one)
	defer func() {
		if one.sb != nil {
			err = errors.Join(err, one.sb.Close(context.WithoutCancel(ctx)))
		}
		if err != nil {
			err = fmt.Errorf("read the solution of %s: %w", t.ID, err)
		}
	}()
	if err := one.start(ctx); err != nil {
		return nil, err
	}
	before, changes, err := one.applied(ctx)
	if err != nil || before == nil || len(changes) == 0 {
		return nil, err
	}
	files = map[string][]byte{}
	for i, v := range before.judge(changes) {
		c := changes[i]
		if c.after.kind == env.KindFile && (v.Reason == "" || !one.reaches(c, v.Reason)) {
			files[c.after.name] = c.after.data
		}
	}
	return files, nil
}
