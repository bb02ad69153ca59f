package recipe

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"deepswe/rl/train/config"
)

// Plan says which GPUs train and which sample. Its figures are those of docs/recipes.md.
type Plan struct {
	// GPUs is the number on each of the Nodes.
	Nodes, GPUs int
	// Model is the base model, Billions its parameters, Rank that of the adapter; 0 trains all weights.
	Model    string
	Billions float64
	Rank     int
	// Length is the longest row in tokens.
	Length int
	// SkyRL has RayGPUs GPUs on each of RayNodes nodes, of which TrainerGPUs on each of TrainerNodes train. Its Engines,
	// of Tensor GPUs each, sample if there are no Replicas: on the trainer's GPUs, in turns with it, if Colocated is
	// set, else on the others. Sequence is the number of GPUs that share a row.
	RayNodes, RayGPUs, TrainerNodes, TrainerGPUs, Engines, Tensor, Sequence int
	Colocated                                                               bool
	// Replicas are vLLM servers of Tensor GPUs each, PerNode of them on a node.
	Replicas, PerNode int
	// Validators are the workers of a validation beside the training, which the Replicas make possible. Adapters is how
	// many adapters are sampled at once: the newest, the one before it, and one that is validated beside them.
	Validators, Adapters int
	// Rollouts is how many rollouts of full length sample at once without losing their cache, on all servers together.
	Rollouts int
	// Update is the trainer's time for the rollouts of a step, and Forward the part of it that is the forward pass.
	Update  time.Duration
	Forward float64
}

const (
	// memory of a GPU in GB.
	memory = 80.0
	// ownShare is the part of the memory for the engines of the trainer, share that for vLLM servers.
	ownShare, share = 0.6, 0.85
	// speed is that of a GPU in FLOP/s, 30% of its peak, fullness the mean share of the context that rollouts fill.
	speed, fullness = 3e14, 0.6
)

var billions = regexp.MustCompile(`(?i)([0-9]+(?:\.[0-9]+)?)B\b`)

func plan(c config.Config, keys map[string]string, nodes, gpus int) (Plan, error) {
	p := Plan{Nodes: nodes, GPUs: gpus, Model: keys["trainer.model"], Tensor: 1, Sequence: 1}
	size := billions.FindStringSubmatch(p.Model)
	if size == nil {
		return p, fmt.Errorf("trainer.model is %q, whose name does not tell its size, as in Qwen/Qwen3-32B", p.Model)
	}
	p.Billions, _ = strconv.ParseFloat(size[1], 64)
	p.Rank, _ = strconv.Atoi(keys["trainer.rank"])
	p.Length, _ = strconv.Atoi(keys["trainer.max_length"])
	weights, state := 2*p.Billions, 4*p.Billions
	if p.Rank == 0 {
		state = 16 * p.Billions
	}
	for p.Tensor < gpus && weights > memory/4*float64(p.Tensor) {
		p.Tensor *= 2
	}
	p.TrainerNodes, p.TrainerGPUs, p.Adapters = nodes, gpus, 2
	sampling := p.split(state)
	train := p.TrainerNodes * p.TrainerGPUs
	p.RayNodes, p.RayGPUs = p.TrainerNodes, p.TrainerGPUs
	p.Engines = max(1, train/p.Tensor)
	switch {
	case p.Colocated:
	case p.Rank == 0: // vLLM loads adapters only, so SkyRL has to give its engines the weights
		p.RayNodes, p.RayGPUs, p.Engines = nodes, gpus, sampling
	default:
		p.Replicas, p.PerNode = sampling, sampling/max(1, nodes-p.TrainerNodes)
	}
	if p.Billions > 16 {
		p.Sequence = p.TrainerGPUs
	}
	if fits := memory / 2 * float64(train); state > fits {
		return p, fmt.Errorf("the training state of %s takes %.0f GB, and %d GPUs have %.0f GB for it; to fix: give more "+
			"--nodes or --gpus", p.Model, state, train, fits)
	}
	engines, part := sampling, share
	if p.Colocated {
		engines, part = p.Engines, ownShare
	}
	cache := perToken(p.Billions) * float64(p.Length)
	p.Rollouts = engines * int((part*memory*float64(p.Tensor)-weights)/cache)
	if p.Rollouts < 1 {
		return p, fmt.Errorf("%d GPUs of %.0f GB have no room for a rollout of %d tokens beside the %.0f GB of %s; to fix: "+
			"give more --gpus, or a lower trainer.max_length", p.Tensor, memory, p.Length, weights, p.Model)
	}
	p.setTimes(c, keys, train)
	if limit := c.Rollouts.Models; limit > 0 {
		p.Rollouts = min(p.Rollouts, limit*p.servers())
	}
	p.setValidators(c.Evaluate)
	return p, nil
}

// setValidators lets a validation go on beside the training where servers can sample an earlier adapter.
func (p *Plan) setValidators(e config.Evaluate) {
	if e.Every > 0 && p.Replicas > 0 {
		p.Validators = cmp.Or(e.Workers, max(1, p.Rollouts/8))
		p.Adapters++
	}
}

// setTimes computes the time of an update on the given number of GPUs.
func (p *Plan) setTimes(c config.Config, keys map[string]string, gpus int) {
	// In FLOP per parameter and token: 2 for a separate forward pass, and for the gradients 2 for another one, 2 to
	// recompute what it does not keep, and 2 each for the gradients of activations and weights.
	work := 2.0 + 2 + 2 + 2 + 2
	if p.Rank > 0 {
		work -= 2
	}
	context := p.Length
	if n, _ := strconv.Atoi(keys["environment.context"]); n > 0 {
		context = min(context, n)
	}
	tokens := fullness * float64(context*c.Rollouts.Tasks*c.Rollouts.Group)
	p.Update = time.Duration(work * p.Billions * 1e9 * tokens / (speed * float64(gpus)) * float64(time.Second))
	p.Forward = 2 / work
}

// split gives the trainer its GPUs, and returns how many engines the others have room for. Rollouts take longer than
// updates: a quarter trains, and more only if the training state needs it.
func (p *Plan) split(state float64) (engines int) {
	fits := func(gpus int) bool { return state <= memory/2*float64(gpus) }
	switch {
	case p.Nodes*p.GPUs == 1:
		p.Colocated = true
		return 0
	case p.Nodes == 1:
		for p.TrainerGPUs = max(1, p.GPUs/4); p.TrainerGPUs < p.GPUs/2 && !fits(p.TrainerGPUs); {
			p.TrainerGPUs *= 2
		}
		p.Tensor = min(p.Tensor, p.GPUs-p.TrainerGPUs)
		return (p.GPUs - p.TrainerGPUs) / p.Tensor
	}
	for p.TrainerNodes = max(1, p.Nodes/4); p.TrainerNodes < p.Nodes-1 && !fits(p.TrainerNodes*p.GPUs); {
		p.TrainerNodes++
	}
	return (p.Nodes - p.TrainerNodes) * (p.GPUs / p.Tensor)
}

// servers returns how many servers deepswe samples from.
func (p *Plan) servers() int { return max(1, p.Replicas) }

// perToken returns the GB of cache for a token: 4 KiB for each layer with 8 heads for keys and values of 128 numbers.
func perToken(billions float64) float64 {
	layers := 36.0
	switch {
	case billions > 50:
		layers = 80
	case billions > 16:
		layers = 64
	}
	return layers * 4096 / 1e9
}
