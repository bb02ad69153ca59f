package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"deepswe/agent"
	"deepswe/env"
)

// Inspection configures the inspection of a server.
type Inspection struct {
	Client *Client
	// Base is the model to try; empty means the first that the server trains.
	Base string
	// Rank is the rank of the adapter to try [32]. If the server refuses it, smaller ones are tried.
	Rank int
	// Tokenizer is the directory with the base model's tokenizer.json and config.json; empty means Base, if that is a
	// directory.
	Tokenizer string
	// Rows and Length are the size of a step to measure: its rows, and the tokens of each; nothing is measured for 0.
	Rows, Length int
	// Sampler is the endpoint that rollouts are sampled from, unless it is the server itself. It is compared with the
	// trainer.
	Sampler Endpoint
}

// Endpoint is a sampler other than the trainer's server.
type Endpoint interface {
	agent.Model
	// Tokenize returns the ids of a text, without special tokens added.
	Tokenize(ctx context.Context, text string) ([]int32, error)
	// Score returns the log-probability of each id after the first. It returns an error if the model lacks an id.
	Score(ctx context.Context, ids []int32) ([]float64, error)
}

// losses returns the names of the servers' losses, in the order of preference.
func losses() []string {
	return []string{"importance_sampling", "ppo", "cross_entropy", "cispo", "gspo", "dppo", "dro"}
}

// Inspect returns findings about a server, for people who set it up. It creates a model for that and unloads it.
func (i Inspection) Inspect(ctx context.Context) []env.Finding {
	const check = "trainer"
	c := i.Client
	if err := c.Health(ctx); err != nil {
		return []env.Finding{{Check: check, Status: env.Failed, Detail: err.Error(),
			Fix: "start the server, or name its address with --trainer"}}
	}
	out := []env.Finding{{Check: check, Status: env.OK, Detail: "answers at " + c.base.Redacted()}}
	add := func(name string, err error, detail, fix string) {
		f := env.Finding{Check: check + " " + name, Status: env.OK, Detail: detail}
		if err != nil {
			f.Status, f.Detail, f.Fix = env.Failed, err.Error(), fix
		}
		if errors.Is(err, errSilent) {
			f.Status = env.Warning
		}
		out = append(out, f)
	}
	models, err := c.Capabilities(ctx)
	if err == nil && len(models) == 0 {
		err = errors.New("the server trains no model")
	}
	var names []string
	for _, m := range models {
		name := m.Name
		if m.Context > 0 {
			name += fmt.Sprintf(" (%d tokens)", m.Context)
		}
		names = append(names, name)
	}
	add("models", err, strings.Join(names, ", "), "")
	if err != nil {
		return out
	}
	i.Base = cmp.Or(i.Base, models[0].Name)
	m, refused, err := i.create(ctx)
	add("adapter", err, i.ranks(m, refused), "name a model and a rank that the server takes")
	if err != nil {
		return out
	}
	defer m.Close(modelTimeout)
	p, err := m.probe(ctx)
	add("gradients", err, p.Normalisation.String(), "")
	if errors.Is(err, errUnavailable) || ctx.Err() != nil {
		return out // what follows would not be answered either
	}
	if err == nil {
		detail := "a request that is sent twice is executed once"
		if !p.Dedups {
			detail = "a request that is sent twice is executed twice (SkyRL 0.3.0 and older) or refused (TuFT): a lost " +
				"reply is resolved by loading the last checkpoint"
		}
		add("repetition", nil, detail, "")
	}
	detail, err := m.losses(ctx)
	add("losses", err, detail, "")
	if i.Rows > 0 {
		detail, err := m.speed(ctx, i.Rows, i.Length)
		add("speed", err, detail, "try fewer tokens with --trainer-length, or give the server more memory")
	}
	return append(out, i.compare(ctx, m)...)
}

// create creates a model with the given rank or, if the server refuses that, the largest of a few smaller ones.
func (i Inspection) create(ctx context.Context) (m *Model, refused error, err error) {
	for _, rank := range []int{cmp.Or(i.Rank, 32), 8, 4, 1} {
		m, err = i.Client.Create(ctx, ModelOptions{Base: i.Base, Rank: rank, Seed: 1})
		if !errors.Is(err, ErrOperation) || !strings.Contains(err.Error(), "rank") {
			return m, refused, err
		}
		refused = cmp.Or(refused, err)
	}
	return nil, refused, err
}

func (i Inspection) ranks(m *Model, refused error) string {
	if m == nil {
		return ""
	}
	text := "rank " + strconv.Itoa(m.options.Rank)
	if e, ok := errors.AsType[*Error](refused); ok {
		text += "; " + e.Detail
	}
	return text
}

// losses tries every loss in a forward pass, which changes nothing. If the server has none, it returns the last error.
func (m *Model) losses(ctx context.Context) (string, error) {
	row := probeRow(1)
	d := datumOf(&row)
	zero := make([]float64, len(probeIDs)-1)
	d.Inputs.Logprobs, d.Inputs.Advantages = floatTensor(zero), floatTensor(zero)
	var has, lacks []string
	var err error
	for _, name := range losses() {
		if _, err = m.pass(ctx, pathForward, passInput{Data: []datum{d}, Loss: name}, false); err != nil {
			lacks = append(lacks, name)
		} else {
			has = append(has, name)
		}
	}
	text := strings.Join(has, ", ")
	if len(has) == 0 {
		return "", err
	}
	if len(lacks) > 0 {
		text += "; not " + strings.Join(lacks, ", ")
	}
	return text, nil
}
