package games

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/trainer/embedded"
)

// Residue is the configuration of the environment "residue", which any model with any vocabulary learns within a few
// steps, because a reply is rewarded for its token ids. It shows whether a trainer trains at all.
type Residue struct {
	// A reply's reward is the share of its tokens whose id modulo Modulus is Remainder.
	Modulus   int `yaml:"modulus" least:"2"`
	Remainder int `yaml:"remainder"`
	// MaxTokens is the length of a reply.
	MaxTokens       int `yaml:"max_tokens" least:"1"`
	TrainTasks      int `yaml:"train_tasks" least:"1"`
	ValidationTasks int `yaml:"validation_tasks" least:"0"`
}

// NewResidue returns the defaults.
func NewResidue() *Residue {
	return &Residue{Modulus: 64, Remainder: 1, MaxTokens: 16, TrainTasks: 16, ValidationTasks: 16}
}

// residuePrompt is the maximum length of a prompt in tokens, with role tokens.
const residuePrompt = 8

// Complete sets the maximum length of a row.
func (s *Residue) Complete(c *config.Config) error {
	c.Algorithm.MaxLength = cmp.Or(c.Algorithm.MaxLength, 2*residuePrompt+s.MaxTokens)
	if s.Remainder < 0 || s.Remainder >= s.Modulus {
		return fmt.Errorf("remainder is %d: want 0 to %d", s.Remainder, s.Modulus-1)
	}
	return nil
}

// Open creates the environment.
func (s *Residue) Open(_ context.Context, o part.EnvironmentOptions) (part.Environment, error) {
	e := &residues{*s, o}
	return part.Environment{Player: e, Language: e.language}, nil
}

// residues is the environment. A task is a number, which is the prompt.
type residues struct {
	settings Residue
	options  part.EnvironmentOptions
}

func (e *residues) Tasks(s part.Split) []string {
	return numbered("%d", s, e.settings.TrainTasks, e.settings.ValidationTasks)
}

// language returns a vocabulary of digits.
func (e *residues) language() (embedded.Language, error) {
	return embedded.Language{
		Vocabulary: numbered("%d", part.Train, 10, 0), Window: residuePrompt, Reply: e.settings.MaxTokens,
	}, nil
}

// Runner samples at temperature 1 for validation too, because token ids are rewarded, and some endpoints return them at
// temperature 1 only.
func (e *residues) Runner(_ part.Split, m agent.Model) run.Runner {
	temperature := 1.0
	return run.RunnerFunc(func(ctx context.Context, a run.Job) (run.Result, error) {
		sampling := agent.OnPolicy(&temperature)
		sampling.Seed = new(a.Seed(e.options.Seed, 0))
		asked := time.Now()
		reply, err := m.Complete(ctx, agent.Request{
			Messages: []agent.Message{{Role: agent.RoleUser, Content: a.Task}}, Sampling: sampling,
			MaxTokens: e.settings.MaxTokens, Tokens: true,
		})
		if err != nil {
			return run.Result{StopReason: agent.ModelError}, fmt.Errorf("residue: %w", err)
		}
		if reply.Tokens == nil {
			return run.Result{}, run.Abort(errors.New("residue: the endpoint returns no token ids"))
		}
		reward := e.reward(reply.Tokens.CompletionIDs)
		return run.Result{
			Reward: &reward, StopReason: agent.Submitted, Turns: []rl.Turn{*reply.Tokens},
			Times: run.Times{Model: time.Since(asked).Seconds()},
		}, nil
	})
}

// reward returns the share of the ids with the remainder.
func (e *residues) reward(ids []int32) float64 {
	n := 0
	for _, id := range ids {
		if int(id)%e.settings.Modulus == e.settings.Remainder {
			n++
		}
	}
	return float64(n) / float64(max(1, len(ids)))
}

// errNotTrained is the verdict on a trainer that does not train.
var errNotTrained = errors.New("the trainer does not train")

// residueRise is by how much the mean reward of the last steps has to exceed that of the first step.
const residueRise = 0.3

// Verdict says whether the trainer of a run of the environment "residue" trains; the error is errNotTrained if not.
// Other environments are for other questions, and their verdict is empty.
func Verdict(c config.Config, points []metrics.Point) (string, error) {
	if _, ok := c.Environment.(*Residue); !ok {
		return "", nil
	}
	var rewards []float64
	for _, p := range points {
		if v, ok := p.Values["reward/mean"]; ok && p.Step > 0 {
			rewards = append(rewards, v)
		}
	}
	n := len(rewards)
	if n == 0 {
		return "", fmt.Errorf("%w: no step has a reward", errNotTrained)
	}
	last := rewards[max(0, n-5):]
	sum := 0.0
	for _, v := range last {
		sum += v
	}
	from, to := rewards[0], sum/float64(len(last))
	rise := fmt.Sprintf("%.2f to %.2f in %d steps", from, to, n)
	if to >= from+residueRise {
		return "the trainer trains: " + rise, nil
	}
	return "", fmt.Errorf("%w: the mean reward went from %s, want a rise of %g; to fix: a model that says any token "+
		"(docs/trainer.md has one), 25 steps or more, optimizer.learning_rate as tinker-check has it; "+
		"if all of that holds, the server's updates do not reach what it samples", errNotTrained, rise, residueRise)
}
