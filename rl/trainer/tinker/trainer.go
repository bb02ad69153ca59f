package tinker

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/rl"
)

// Options configure a Trainer. Client and Model.Base have no defaults.
type Options struct {
	Client *Client
	Model  ModelOptions
	// Start is the server's address of the checkpoint with the initial weights; empty means the base model's.
	Start string
	// Known is how the server behaves. If it is nil, the server is probed, which needs room for a second model.
	Known *Probe
	// Vocabulary is the number of ids. No id outside it is sent, because on some servers a single one breaks every
	// model.
	Vocabulary int
	// MaxLength is the longest row in tokens that the server takes; 0 if it is not known.
	MaxLength int
	// Dir is the directory for the local part of checkpoints. The weights are on the server.
	Dir string
	// Codec converts conversations to ids and back. It may be nil if nothing is sampled, or if samplers write
	// conversations with the chat template and the tokenizer that they have.
	Codec Codec
	// Samplers sample instead of the server, if there are any.
	Samplers Samplers
	Check    Check
}

// Trainer trains a model behind a Tinker server, and samples from it.
//
// Forward passes are made by ForwardBackward where they are needed, and so are gradients if the server sums them. If it
// averages them over sequences, Step makes them, because only then is the number of sequences known.
type Trainer struct {
	options Options
	client  *Client
	probe   Probe
	limits  limits

	model   *Model // nil until it is needed
	pending []share
	last    rl.Objective
	broken  bool // a gradient was not finite, so the step is skipped

	// version counts publications. moved is set if the weights have changed since the last one.
	version int64
	moved   bool
	number  int64 // of the sampling session
	gate    *gate // for turns that the trainer's server samples
	sampler sampler
	policy  *rl.Policy
	// floor is the difference of sampler and trainer at the first publication, when only their arithmetic can differ.
	floor float64
}

var _ rl.Trainer = (*Trainer)(nil)

// sampler samples the policy: the trainer's server, or other servers.
type sampler interface {
	// publish makes the model's weights the policy of a version. number counts publications.
	publish(ctx context.Context, m *Model, number, version int64) (agent.Model, error)
	// check samples about the given number of tokens from the latest policy. The rows are ordered by sampler.
	check(ctx context.Context, seed int64, tokens int) ([]rl.Row, error)
	// servers returns how many servers sample the latest policy, and how many are put aside.
	servers() (ready, aside int)
	close()
}

// Open waits for the server, checks that it trains the model, and probes it. The client is closed with the trainer.
func Open(ctx context.Context, o Options) (*Trainer, error) {
	o.Check.Tokens = cmp.Or(o.Check.Tokens, 256)
	if o.Vocabulary < 1 {
		return nil, invalidf("open the trainer", "the size of the vocabulary is not known; to fix: set trainer.vocabulary "+
			"to the model's vocab_size")
	}
	if err := o.Client.Health(ctx); err != nil {
		return nil, err
	}
	supported, err := o.Client.supports(ctx, o.Model.Base)
	if err != nil {
		return nil, err
	}
	o.Model.Bound = len(supported.Roles) > 0
	length := cmp.Or(o.MaxLength, supported.Context)
	if supported.Context > 0 {
		length = min(length, supported.Context)
	}
	own := newSampler(o.Client, o.Codec, length)
	t := &Trainer{options: o, client: o.Client, limits: limits{o.Vocabulary, length}, sampler: own, gate: own.gate}
	if o.Known != nil {
		t.probe = *o.Known
	} else if t.probe, err = o.Client.Probe(ctx, o.Model); err != nil {
		return nil, err
	}
	t.options.Model.Dedups, t.options.Model.Doubles = t.probe.Dedups, !t.probe.Dedups
	o.Client.log.Info("trainer", "model", o.Model.Base, "gradients", t.probe.Normalisation.String(),
		"recognises repeated requests", t.probe.Dedups)
	if o.Known == nil && !t.probe.Dedups {
		o.Client.log.Warn("the trainer does not recognise repeated requests (SkyRL 0.3.0): after a lost reply, the " +
			"run goes back to its last checkpoint")
	}
	if o.Samplers.named() {
		if o.Model.Rank == 0 {
			return nil, invalidf("open the trainer", "samplers load adapters, and rank 0 makes none; to fix: set trainer.rank, "+
				"or omit trainer.samplers")
		}
		a, err := newAdapters(o.Client, o.Codec, t.limits, o.Samplers)
		if err != nil {
			return nil, err
		}
		if err := a.open(ctx); err != nil {
			return nil, err
		}
		t.sampler = a
	}
	return t, nil
}

// ready creates the model, unless there is one.
func (t *Trainer) ready(ctx context.Context) (err error) {
	switch {
	case t.model != nil:
	case t.options.Start == "":
		t.model, err = t.create(ctx)
	default:
		if err = t.restore(ctx, t.options.Start, false); err != nil {
			err = fmt.Errorf("begin with %s: %w", t.options.Start, err)
		}
	}
	return err
}

// create creates the model to train. If the server averages gradients, it may be SkyRL's JAX backend, where a new model
// inherits the gradient that the previous model in its slot has left, such as a killed client's. A temporary model
// clears that first, because a step of the model itself would count in its optimizer.
func (t *Trainer) create(ctx context.Context) (*Model, error) {
	if n := t.probe.Normalisation; n.Tokens || n.Sequences {
		if err := t.clear(ctx); err != nil {
			return nil, fmt.Errorf("clear the gradient of an earlier model: %w", err)
		}
	}
	return t.client.Create(ctx, t.options.Model)
}

// clear discards the gradient that the next model would inherit.
func (t *Trainer) clear(ctx context.Context) error {
	m, err := t.client.Create(ctx, t.options.Model)
	if err != nil {
		return err
	}
	defer m.Close(modelTimeout)
	norm, known, err := m.zero(ctx)
	if err == nil && known && norm != 0 {
		t.client.log.Info("an earlier model has left a gradient, which is discarded", "norm", norm)
	}
	return err
}

// Publish makes the current weights the policy, checks that sampler and trainer agree on log-probabilities, and lets
// turns begin again. Only the newest policy can be sampled and, with samplers, those that are held. Turns of any
// other policy are sampled from the newest, as the versions of the replies show.
func (t *Trainer) Publish(ctx context.Context) (rl.Policy, error) {
	if t.policy != nil && !t.moved {
		return *t.policy, nil
	}
	if t.options.Codec == nil && !t.options.Samplers.named() {
		return rl.Policy{}, invalidf("publish", "no codec")
	}
	if err := t.ready(ctx); err != nil {
		return rl.Policy{}, err
	}
	if err := t.gate.shut(ctx); err != nil {
		return rl.Policy{}, err
	}
	t.number++
	version := t.version
	if t.moved {
		version++
	}
	model, err := t.sampler.publish(ctx, t.model, t.number, version)
	if err != nil {
		return rl.Policy{}, err
	}
	gap, err := t.compare(ctx)
	if err != nil {
		return rl.Policy{}, err
	}
	t.version, t.moved = version, false
	t.policy = &rl.Policy{Model: model, Version: version, Gap: gap}
	t.gate.release()
	return *t.policy, nil
}

// Gauges returns metrics of the samplers; nil if the trainer's server samples.
func (t *Trainer) Gauges() map[string]float64 {
	if !t.options.Samplers.named() {
		return nil
	}
	ready, aside := t.sampler.servers()
	return map[string]float64{"samplers/ready": float64(ready), "samplers/aside": float64(aside)}
}

// Samplers returns how many servers sample the latest policy.
func (t *Trainer) Samplers() int {
	ready, _ := t.sampler.servers()
	return ready
}

// closeTimeout limits the requests of Close to a server: a run has to end within ten seconds of an interrupt.
const closeTimeout = time.Second

// Close unloads the model and releases the trainer.
func (t *Trainer) Close() error {
	var sampler sync.WaitGroup
	sampler.Go(t.sampler.close)
	if t.model != nil {
		t.model.Close(closeTimeout)
	}
	sampler.Wait()
	t.client.Close()
	return nil
}

// MaxContext returns the longest sequence in tokens, prompt and reply together, that can be sampled and trained; 0 if
// it is not known.
func (t *Trainer) MaxContext() int { return t.limits.length }

var _ agent.Model = (*serverSampler)(nil)
