package tinker_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"deepswe/agent"
	"deepswe/rl"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/trainer/trainertest"
)

// target is a server to test, and the model that it trains.
type target struct {
	URL, Base  string
	Vocabulary int
	Codec      tinker.Codec
	// Reply is the length of the sampled replies.
	Reply int
	// CheckTokens is how many tokens are compared after each publication.
	CheckTokens int
	// LearningRate is large enough for a step to have a visible effect.
	LearningRate float64
	// Ordered is set for servers that refuse an operation whose number is not the next one.
	Ordered bool
}

// conform checks everything on which a client and a server must agree.
func conform(t *testing.T, on target) {
	c := &conformance{target: on}
	probe, err := c.client(t).Probe(t.Context(), c.model())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("gradients: %s; recognises repeated requests: %v", probe.Normalisation, probe.Dedups)
	c.known = probe
	for _, test := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"a published policy has the trainer's probabilities", c.published},
		{"losses agree, chunks and parts of an update too", c.losses},
		{"an update that is sent as it comes is the same", c.streamed},
		{"the server's own loss has the same gradient", c.single},
		{"imitation takes the same step in each of its ways", c.imitation},
		{"a checkpoint restores weights and optimizer", c.checkpoints},
		{"no update is lost or made twice", c.faults},
		{"seeds reproduce", c.seeds},
		{"bad input is refused before it is sent", c.refusals},
		{"the server's refusals are told apart", c.kinds},
	} {
		t.Run(test.name, test.do)
	}
}

type conformance struct {
	target
	known tinker.Probe
}

func (c *conformance) client(t *testing.T) *tinker.Client {
	t.Helper()
	client, err := tinker.NewClient(tinker.ClientOptions{URL: c.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func (c *conformance) model() tinker.ModelOptions {
	return tinker.ModelOptions{Base: c.Base, Rank: 8, Seed: 3}
}

// open returns a new trainer.
func (c *conformance) open(t *testing.T, dir string, change func(*tinker.Options)) *tinker.Trainer {
	t.Helper()
	o := tinker.Options{
		Client: c.client(t), Model: c.model(), Known: &c.known, Vocabulary: c.Vocabulary, Dir: dir, Codec: c.Codec,
		Check: tinker.Check{Tokens: c.CheckTokens},
	}
	if change != nil {
		change(&o)
	}
	trainer, err := tinker.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return trainer
}

// checkedRows is the number of rows, which is also how many a trainer samples to compare: servers compile their
// programs anew for each number of sequences.
const checkedRows = 8

// rows samples replies and gives them advantages, half of them above 0 and none of them 0. Summed over the tokens, they
// are not zero.
func (c *conformance) rows(t *testing.T, p rl.Policy) []rl.Row {
	t.Helper()
	var rollouts []rl.Rollout
	for i := range checkedRows {
		sampling := agent.OnPolicy(new(1.0))
		sampling.Seed = new(int64(100 * i))
		reply, err := p.Model.Complete(t.Context(), agent.Request{
			Messages: []agent.Message{{Role: agent.RoleUser, Content: fmt.Sprintf("go %d", i%2)}},
			Sampling: sampling, MaxTokens: c.Reply, Tokens: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		if v := reply.Tokens.PolicyVersion; v == nil || *v != p.Version {
			t.Errorf("the reply is of version %v, and the policy is %d", v, p.Version)
		}
		reward := float64(i % 4)
		rollouts = append(rollouts, rl.Rollout{
			Task: "conform", Group: "0", Attempt: i, Reward: &reward, StopReason: agent.Submitted,
			PolicyVersion: rl.VersionNumber(p.Version), Turns: []rl.Turn{*reply.Tokens},
		})
	}
	a, err := rl.Preset(rl.DefaultPreset)
	if err != nil {
		t.Fatal(err)
	}
	a.MaxLength = c.Reply + 64
	rows, _, err := a.Rows(rollouts)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func (c *conformance) optimizer() rl.Optimizer { return rl.Optimizer{LearningRate: c.LearningRate} }

func (c *conformance) published(t *testing.T) {
	trainer := c.open(t, "", nil)
	defer trainer.Close()
	first, err := trainer.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := trainer.Publish(t.Context())
	if err != nil || again.Version != first.Version {
		t.Errorf("nothing was changed, and version %d is %d: %v", first.Version, again.Version, err)
	}
	p := first
	for range 2 {
		rows := c.rows(t, p)
		stats, err := trainer.ForwardBackward(t.Context(), rows, rl.Objective{})
		if err != nil {
			t.Fatal(err)
		}
		if stats.RatioMax > 1+trainertest.Tolerance || stats.RatioMin < 1-trainertest.Tolerance {
			t.Errorf("ratios of fresh rollouts are %v to %v", stats.RatioMin, stats.RatioMax)
		}
		step, err := trainer.Step(t.Context(), c.optimizer())
		if err != nil || !(step.GradientNorm > 1e-9) {
			t.Fatalf("the step is %+v, %v", step, err)
		}
		next, err := trainer.Publish(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if next.Version != p.Version+1 {
			t.Errorf("version %d after %d", next.Version, p.Version)
		}
		if next.Gap.Max > trainertest.Tolerance || next.Gap.Tokens == 0 {
			t.Errorf("sampler and trainer differ: %+v", next.Gap)
		}
		t.Logf("gradient norm %.3g, gap %+v", step.GradientNorm, next.Gap)
		p = next
	}
}

func (c *conformance) seeds(t *testing.T) {
	trainer := c.open(t, "", nil)
	defer trainer.Close()
	p, err := trainer.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	draw := func(seed int64) string {
		s := agent.OnPolicy(new(1.0))
		s.Seed = &seed
		reply, err := p.Model.Complete(t.Context(), agent.Request{
			Messages: []agent.Message{{Role: agent.RoleUser, Content: "go"}}, Sampling: s, MaxTokens: c.Reply, Tokens: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(reply.Tokens.CompletionIDs, reply.Tokens.Logprobs)
	}
	if a, b := draw(7), draw(7); a != b {
		t.Errorf("one seed gives %s and %s", a, b)
	}
}

func (c *conformance) refusals(t *testing.T) {
	trainer := c.open(t, "", func(o *tinker.Options) { o.MaxLength = 8 })
	defer trainer.Close()
	good := func() rl.Row {
		return rl.Row{
			IDs: []int32{1, 2, 3}, Mask: []uint8{0, 1, 1}, Logprobs: []float64{0, -1, -1}, Advantage: 1, Scale: 1,
		}
	}
	for name, change := range map[string]func(*rl.Row){
		"one token":             func(r *rl.Row) { r.IDs, r.Mask, r.Logprobs = r.IDs[:1], r.Mask[:1], r.Logprobs[:1] },
		"another length":        func(r *rl.Row) { r.Mask = r.Mask[:2] },
		"the first is trained":  func(r *rl.Row) { r.Mask[0] = 1 },
		"below the vocabulary":  func(r *rl.Row) { r.IDs[1] = -1 },
		"beyond the vocabulary": func(r *rl.Row) { r.IDs[2] = int32(c.Vocabulary) },
		"NaN logprob":           func(r *rl.Row) { r.Logprobs[1] = math.NaN() },
		"NaN advantage":         func(r *rl.Row) { r.Advantage = math.NaN() },
		"an advantage missing":  func(r *rl.Row) { r.Advantages = []float64{0, 1} },
		"a NaN of advantages":   func(r *rl.Row) { r.Advantages = []float64{0, 1, math.NaN()} },
		"infinite scale":        func(r *rl.Row) { r.Scale = math.Inf(1) },
		"too long": func(r *rl.Row) {
			r.IDs, r.Mask, r.Logprobs = make([]int32, 9), make([]uint8, 9), make([]float64, 9)
		},
	} {
		row := good()
		change(&row)
		if _, err := trainer.ForwardBackward(t.Context(), []rl.Row{row}, rl.Objective{}); !errors.Is(err, tinker.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := trainer.ForwardBackward(t.Context(), nil, rl.Objective{}); !errors.Is(err, tinker.ErrInvalid) {
		t.Errorf("an empty batch: %v", err)
	}
}

func (c *conformance) kinds(t *testing.T) {
	client := c.client(t)
	high := c.model()
	high.Rank = 9999
	_, err := client.Create(t.Context(), high)
	if !errors.Is(err, tinker.ErrOperation) || errors.Is(err, rl.ErrTrainerLost) {
		t.Errorf("rank 9999: %v", err)
	}
	_, err = tinker.Open(t.Context(), tinker.Options{
		Client: client, Model: tinker.ModelOptions{Base: "another", Rank: 8}, Vocabulary: 8, Codec: c.Codec,
	})
	if !errors.Is(err, tinker.ErrInvalid) {
		t.Errorf("another model: %v", err)
	}
}
