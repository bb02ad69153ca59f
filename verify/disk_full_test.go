package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"deepswe/env"
)

// diskless starts sandboxes whose disk fills up.
type diskless struct {
	*scratch
	full bool // nothing can be written before the tests
	over bool // the tests are ended because they fill the disk
	gone bool // the tests use up the sandbox, which ends
}

func (p diskless) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	sb, err := p.scratch.Start(ctx, s)
	return disklessSandbox{sb, p}, err
}

type disklessSandbox struct {
	env.Sandbox
	p diskless
}

func (s disklessSandbox) Write(
	ctx context.Context, name string, data []byte, o env.WriteOptions,
) (env.FileInfo, error) {
	if s.p.full && strings.Contains(name, "room") {
		return env.FileInfo{}, fmt.Errorf("write %s: %w", name, env.ErrNoSpace)
	}
	return s.Sandbox.Write(ctx, name, data, o)
}

func (s disklessSandbox) Run(ctx context.Context, c env.Command) (env.Result, error) {
	r, err := s.Sandbox.Run(ctx, c)
	r.OutOfDisk = s.p.over && strings.Contains(c.Line, "runner.sh")
	if s.p.gone && strings.Contains(c.Line, "runner.sh") {
		return env.Result{}, fmt.Errorf("%w: %w", env.ErrInfrastructure, env.ErrExhausted)
	}
	return r, err
}

// A failure because the disk is full says nothing about the patch, whichever step it is in.
func TestFullDiskIsNotTheAgentsDoing(t *testing.T) {
	t.Parallel()
	for name, patch := range map[string][]byte{
		"tests that would pass":  gitDiff(t, wrongAnswer, with(wrongAnswer, "answer", "42\n")),
		"a patch that would not": []byte("--- a/answer\n+++ b/answer\n@@ -1 +1 @@\n-40\n+42\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := Evaluator{Provider: diskless{scratch: newScratch(t, wrongAnswer), full: true}}
			v, err := e.Evaluate(t.Context(), wrongAnswerTask(), patch)
			if !errors.Is(err, env.ErrInfrastructure) || !strings.Contains(err.Error(), "full before the tests begin") ||
				!strings.Contains(err.Error(), "to fix:") {
				t.Errorf("reward %v, error %v", v.Reward, err)
			}
		})
	}
}

// If the tests fill the disk, the patch is to blame: its reward is 0, while the report still says what the log shows.
func TestTestsThatFillTheDisk(t *testing.T) {
	t.Parallel()
	e := Evaluator{Provider: diskless{scratch: newScratch(t, wrongAnswer), over: true}}
	right := gitDiff(t, wrongAnswer, with(wrongAnswer, "answer", "42\n"))
	v, err := e.Evaluate(t.Context(), wrongAnswerTask(), right)
	if err != nil {
		t.Fatal(err)
	}
	if v.Reward != 0 || !v.OutOfDisk || !strings.Contains(v.Detail, "--disk") || v.Status != Resolved {
		t.Errorf("%s with reward %v, out of disk %v: %s", v.Status, v.Reward, v.OutOfDisk, v.Detail)
	}
	task := wrongAnswerTask()
	task.Tests.RewardFile = t.TempDir() + "/reward.txt"
	task.Tests.Script = "# runner.sh\necho 1 > " + task.Tests.RewardFile
	if v, err = e.Evaluate(t.Context(), task, right); err != nil || v.Reward != 0 || v.Status != Unresolved {
		t.Errorf("with a reward file: %s with reward %v, %v", v.Status, v.Reward, err)
	}
}

// Tests that end the sandbox by using up its memory or disk have failed: another run would end in the same way.
func TestExhaustedSandboxIsAVerdict(t *testing.T) {
	t.Parallel()
	e := Evaluator{Provider: diskless{scratch: newScratch(t, wrongAnswer), gone: true}}
	v, err := e.Evaluate(t.Context(), wrongAnswerTask(), gitDiff(t, wrongAnswer, with(wrongAnswer, "answer", "42\n")))
	if err != nil || v.Status != Unresolved || v.Reward != 0 || v.Void || !strings.Contains(v.Detail, "used up") {
		t.Errorf("%s, reward %v, void %v, %q, %v", v.Status, v.Reward, v.Void, v.Detail, err)
	}
}
