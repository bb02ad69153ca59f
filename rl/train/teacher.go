package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/agent/llm"
	"deepswe/rl"
	"deepswe/rl/train/config"
)

// teacher scores what the policy has sampled.
type teacher struct {
	settings config.Teacher
	endpoint scorer
}

// scorer is a model that knows how likely tokens are.
type scorer interface {
	// Score returns the logprob of each token after the first.
	Score(ctx context.Context, ids []int32) ([]float64, error)
	SameTokenizer(ctx context.Context, ids []int32, passage string) error
}

// teacherPatience is how long to wait for a teacher that does not answer.
const teacherPatience = 10 * time.Minute

// teacherWorkers is how many rows a teacher scores at once.
const teacherWorkers = 8

// openTeacher returns nil if there is none.
func openTeacher(c config.Teacher, w cli.World) (*teacher, error) {
	if c.URL == "" {
		return nil, nil
	}
	client, err := llm.New(llm.Options{
		BaseURL: c.URL, APIKey: w.Getenv("OPENAI_API_KEY"), Model: c.Model, Patience: teacherPatience, Log: w.Logger(),
	})
	if err != nil {
		return nil, fmt.Errorf("teacher.url: %w", err)
	}
	return &teacher{c, client}, nil
}

// passage is a text that few tokenizers split alike.
const passage = "for i in range(1234567):\n\t\tself.x[i] += 3.14159  # don't  touch\n\n\n" +
	`        return {"a": [None, b'\x00']} <b>HTTPServerError</b> été żółw 你好 Привет 🙂`

// check refuses a teacher with another tokenizer than the policy.
func (t *teacher) check(ctx context.Context, policy agent.Model) error {
	if t == nil {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("teacher %s: %w", t.settings.URL, err) }
	one := 1.0
	reply, err := policy.Complete(ctx, agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: passage}}, Sampling: agent.OnPolicy(&one), MaxTokens: 1,
		Tokens: true,
	})
	if err != nil {
		return fail(fmt.Errorf("ask the policy for a token, to compare tokenizers: %w", err))
	}
	if reply.Tokens == nil || len(reply.Tokens.PromptIDs) == 0 {
		return fail(errors.New("the policy has no token ids"))
	}
	if err := t.endpoint.SameTokenizer(ctx, reply.Tokens.PromptIDs, passage); err != nil {
		return fail(err)
	}
	if _, err := t.endpoint.Score(ctx, slices.Concat(reply.Tokens.PromptIDs, reply.Tokens.CompletionIDs)); err != nil {
		return fail(err)
	}
	return nil
}

// distillation sums what a teacher has said of trained tokens.
type distillation struct {
	tokens, clipped int
	// apart is the sum of the sampler's log-probabilities less those of the teacher.
	apart float64
	took  time.Duration
}

// teach sets the advantages of the rows' tokens from the teacher's log-probabilities.
func (u *update) teach(ctx context.Context, rows []rl.Row) error {
	if u.teacher == nil {
		return nil
	}
	defer u.since(u.now(), &u.distillation.took)
	logprobs := make([][]float64, len(rows))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(teacherWorkers)
	for i := range rows {
		if !slices.Contains(rows[i].Mask, 1) {
			continue
		}
		g.Go(func() (err error) {
			logprobs[i], err = u.teacher.endpoint.Score(ctx, rows[i].IDs)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("teacher %s: %w", u.teacher.settings.URL, err)
	}
	for i, said := range logprobs {
		if said != nil {
			u.distillation.learn(&rows[i], said, u.teacher.settings)
		}
	}
	return nil
}

// learn sets the advantages of a row from said, the teacher's log-probabilities of its tokens after the first.
func (l *distillation) learn(r *rl.Row, said []float64, c config.Teacher) {
	advantages := make([]float64, len(r.IDs))
	for t, m := range r.Mask {
		if m == 0 {
			continue
		}
		above := said[t-1] - r.Logprobs[t]
		l.tokens++
		l.apart -= above
		if c.Clip > 0 && math.Abs(above) > c.Clip {
			l.clipped++
			above = math.Copysign(c.Clip, above)
		}
		advantages[t] = c.Scale * above
		if c.Reward {
			advantages[t] += r.AdvantageOf(t)
		}
	}
	r.Advantages = advantages
}

func (l *distillation) describe(values map[string]float64) {
	if l.tokens > 0 {
		values["teacher/kl"] = l.apart / float64(l.tokens)
		values["teacher/clipped"] = float64(l.clipped) / float64(l.tokens)
		values["time/teacher"] = l.took.Seconds()
	}
}
