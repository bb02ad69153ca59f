package verify

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"deepswe/env"
	"deepswe/verify/harness"
	"deepswe/verify/testlog"
)

// EvaluationTimeout is the official harness's limit on a test run.
const EvaluationTimeout = 1800 * time.Second

// Evaluator grades patches by running tests in pristine sandboxes. Nothing but the patch comes from the agent. The zero
// value but for Provider is useful. It is safe for concurrent use.
type Evaluator struct {
	Provider env.Provider
	// Timeout is the longest that the tests may run: when 0, the task's own limit, or EvaluationTimeout where it has none.
	Timeout time.Duration
	// Network opens the network while tests run, also for tasks that do not ask for it.
	Network bool
	// Run names the run, for labels.
	Run string
	// Training leaves out the run that is made exactly as the official harness makes it: the first one is strict already.
	Training bool
	// Canary says how a reward of 1 is confirmed.
	Canary CanaryMode
	// RefuseTelltales gives no reward to a patch with a [Telltale].
	RefuseTelltales bool

	references references
	maxLog     int    // for tests: the constant of that name when 0
	twinSeed   uint64 // for tests: random when 0
}

// Status says in one word how an evaluation ended.
type Status string

// The statuses. An infrastructure failure is none of them, but an error.
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
	// Status is by the official harness's rules, in which Suspicious does not count.
	Status Status `json:"status"`
	// Reward is that of the stricter reading, 1 or 0; a task whose script gives the reward itself may have any other.
	Reward float64 `json:"reward"`
	// Void is set where the task itself is at fault: no patch gets a verdict.
	Void bool `json:"void,omitempty"`
	// Detail says more about a status: the words of git, the limit, the reason of ErrUngradable.
	Detail     string      `json:"detail,omitempty"`
	Suspicious []Suspicion `json:"suspicious,omitempty"`
	// Withheld are the changes that the strict trial does not take. NeedsWithheld is set where the tests do not pass
	// without them.
	Withheld      []Withheld `json:"withheld,omitempty"`
	NeedsWithheld bool       `json:"needs_withheld,omitempty"`
	// InfraReason and InfraTier are the class of failures of the environment that the logs show, see [harness.Classify].
	InfraReason string       `json:"infra_failure_reason,omitempty"`
	InfraTier   harness.Tier `json:"infra_failure_tier,omitempty"`
	// Fixed are the FAIL_TO_PASS tests that pass now, Broken the PASS_TO_PASS tests that do not any more.
	Fixed  []string `json:"fixed,omitempty"`
	Broken []string `json:"broken,omitempty"`
	// Rewards are what a script that gives the reward itself has left.
	Rewards Rewards `json:"rewards,omitempty"`
	// Confirmation says by what a reward was earned; nil where the first run gave none.
	Confirmation *Confirmation `json:"confirmation,omitempty"`
	// Applied is the command that took the patch.
	Applied string  `json:"applied,omitempty"`
	Seconds float64 `json:"seconds"`
	// LogBytes is the length of the whole log, Network and Timeout what the tests ran under.
	LogBytes int64   `json:"log_bytes"`
	Network  bool    `json:"network,omitempty"`
	Timeout  float64 `json:"timeout_seconds"`
	// OutOfMemory is set when the kernel killed a process of the sandbox for memory while the tests ran.
	OutOfMemory bool `json:"out_of_memory,omitempty"`
	// OutOfDisk is set when the tests wrote more than the sandbox's limit on the disk and were ended: Reward is 0.
	OutOfDisk bool `json:"out_of_disk,omitempty"`

	// Report is the official harness's, nil where it would write none.
	Report *harness.Report `json:"-"`
	// Tests are the tests that the log names, nil where it was not read.
	Tests *testlog.Results `json:"-"`
	// Log is what the test script printed, StrictLog what it printed when the reward was confirmed.
	Log       []byte `json:"-"`
	StrictLog []byte `json:"-"`
}

// Infra is the class of failures of the environment that the logs show, nil for none.
func (v Evaluation) Infra() *harness.Infra {
	if v.InfraReason == "" {
		return nil
	}
	return &harness.Infra{Reason: v.InfraReason, Tier: v.InfraTier}
}

// Solved is the stricter verdict.
func (v Evaluation) Solved() bool { return v.Reward >= 1 }

// Evaluate applies the patch in a fresh sandbox, runs the task's tests and grades their log, as the official harness
// would. A nil patch is a prediction that has none. Where the tests pass, they run once more, without what no fix is
// made of (see [Withheld]), and with twins among them, which are tests that must fail (see [Confirmation]). Reward is
// of both runs together, all else of the first.
//
// The error is an infrastructure failure: there is no verdict, and the evaluation has to be repeated.
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
	limit := e.limit(t)
	if patch == nil {
		v := e.newEvaluation(t, patch, limit)
		v.Status = NoPatch
		grade, err := GradeLog(t, Evidence{NoPatch: true})
		v.Report = &grade.Report
		return v, err
	}
	harbor := t.Tests.RewardFile != ""
	first := &trial{task: t, patch: patch, limit: limit, strict: e.Training && !harbor}
	if err := e.runTrial(ctx, first); err != nil || first.v.Reward == 0 || first.v.Void {
		return first.v, err
	}
	v := first.v
	v.Confirmation = &Confirmation{Earned: []string{"harness"}, Runs: 1}
	if first.strict {
		v.Confirmation.Earned[0] = "strict"
	}
	if harbor {
		err := e.confirmReward(ctx, first, &v)
		return v, err
	}
	err := e.confirm(ctx, t, patch, &v, first.strict)
	return v, err
}

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

// runTrial runs one trial from the start of its sandbox to its end.
func (e *Evaluator) runTrial(ctx context.Context, t *trial) (err error) {
	t.Evaluator, t.v = e, e.newEvaluation(t.task, t.patch, t.limit)
	t.patchPath = "/tmp/deepswe-" + rand.Text() + ".diff"
	if err := Gradable(t.task); err != nil {
		t.v.Status, t.v.Void, t.v.Detail = Ungradable, true, err.Error()
		return nil
	}
	defer func() {
		t.v.classify()
		if t.sb != nil {
			err = errors.Join(err, t.sb.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err = t.run(ctx); errors.Is(err, env.ErrExhausted) {
		t.v.Status, t.v.Reward, t.v.Detail = Unresolved, 0, "the sandbox ended: its own memory or disk was used up"
		err = nil
	}
	return err
}

// Gradable returns the reason why no patch for a task can be graded, whatever its tests would say, as an error that
// wraps ErrUngradable. It is nil for a task that is fine.
func Gradable(t env.Task) error {
	fail := func(reason Reason, err error) error { return &GradingError{t.ID, reason, err} }
	if t.Tests.Script == "" {
		return fail(NoTests, errors.New("the task has no test script"))
	}
	if t.Tests.RewardFile != "" {
		return nil
	}
	if _, err := testlog.Lookup(t.Tests.Parser); err != nil {
		return fail(UnknownParser, err)
	}
	if t.Tests.Expected == nil && t.Tests.EvalType != PassAndFail && t.Tests.EvalType != FailOnly {
		return fail(UnknownEvalType, fmt.Errorf("%w %q", errEvalType, t.Tests.EvalType))
	}
	return nil
}

// Key identifies the outcome of evaluating the patch: it changes with the patch, the version of the grader, what the
// task is graded by, and the limits. A result under the same key may be used again.
func (e *Evaluator) Key(t env.Task, patch []byte) string {
	t.Prepare = nil // the grader does not see it
	if t.Tests.RewardFile == "" {
		t.Statement = "" // nor this
	}
	spelled, err := json.Marshal(struct {
		Task    env.Task
		Patch   string
		None    bool
		Grader  string
		Timeout time.Duration
		Network bool
		Limits  env.Limits // this and the next: of older keys, which stay valid
		MaxLog  int
		// Of later keys.
		Training bool       `json:",omitempty"`
		Canary   CanaryMode `json:",omitempty"`
		Refuse   bool       `json:",omitempty"`
	}{
		Task: t, Patch: hashOf(patch), None: patch == nil, Grader: Grader, Timeout: e.Timeout, Network: e.Network,
		Training: e.Training, Canary: e.Canary, Refuse: e.RefuseTelltales,
	})
	if err != nil {
		return "" // plain data always can be
	}
	return hashOf(spelled)
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
