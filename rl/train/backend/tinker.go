package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/agent/tokenizer"
	"deepswe/rl/train/config"
	"deepswe/rl/train/modelfiles"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
	"deepswe/rl/trainer/embedded"
	"deepswe/rl/trainer/tinker"
)

// Tinker is the configuration of the trainer "tinker": a model behind the Tinker HTTP API.
type Tinker struct {
	BaseURL string `yaml:"base_url"`
	// Model is the server's name of the base model. Rank is the rank of the LoRA adapter; 0 trains all weights.
	Model string `yaml:"model"`
	Rank  int    `yaml:"rank" least:"0"`
	// Start is a run of this trainer, or a checkpoint's address, whose weights the policy begins with.
	Start string `yaml:"start"`
	// Normalisation says whether the server sums gradients or averages them over tokens and sequences; probe finds out.
	Normalisation string `yaml:"normalisation"`
	// Tokenizer is the directory of the base model's tokenizer.json. If it is empty, the model is searched for on this
	// machine.
	Tokenizer string `yaml:"tokenizer"`
	// Template is the chat template: qwen3, qwen2.5, server for that of the samplers, or auto for the one in the
	// tokenizer's directory, or the samplers' if that cannot be rendered here.
	Template string `yaml:"template"`
	// Samplers are OpenAI endpoints of vLLM servers that sample instead of the server. SamplersFile names them instead,
	// one per line, and may change while the run lasts. Adapters is the directory from which they load adapters.
	Samplers     []string `yaml:"samplers"`
	SamplersFile string   `yaml:"samplers_file"`
	Adapters     string   `yaml:"adapters"`
	// LoRASync is where this machine sees the directory in which the server writes adapters; see tinker.ClientOptions.
	LoRASync string `yaml:"lora_sync_path"`
	// Vocabulary is the number of token ids; 0 reads it from the config.json in the tokenizer's directory.
	Vocabulary int `yaml:"vocabulary" least:"0"`
	// MaxLength is the longest sequence that the server takes, 0 for algorithm.max_length or the longest context.
	MaxLength      int             `yaml:"max_length" least:"0"`
	CheckTokens    int             `yaml:"check_tokens" least:"1"`
	CheckTolerance float64         `yaml:"check_tolerance" most:"100"`
	Patience       config.Duration `yaml:"patience"`
}

// The values of Normalisation.
const (
	normProbe = "probe"
	normSum   = "sum"
	normMean  = "mean"
)

// NewTinker returns the defaults.
func NewTinker() *Tinker {
	return &Tinker{
		Rank: 32, Normalisation: normProbe, Template: modelfiles.TemplateAuto, CheckTokens: 256,
		Patience: config.Duration(5 * time.Minute),
	}
}

// Complete sets a learning rate for what is trained, and refuses what the server's loss cannot do.
func (s *Tinker) Complete(c *config.Config) error {
	if c.Optimizer.LearningRate == 0 {
		c.Optimizer.LearningRate = 2e-5
		if s.Rank == 0 {
			c.Optimizer.LearningRate = 1e-6
		}
	}
	if s.MaxLength == 0 {
		s.MaxLength = max(c.Algorithm.MaxLength, c.Longest(func(g config.Stage) int { return g.Context }))
		for _, tokens := range c.Contexts {
			s.MaxLength = max(s.MaxLength, tokens)
		}
	}
	paths := []*string{&s.Tokenizer, &s.Adapters, &s.SamplersFile, &s.LoRASync}
	if !strings.HasPrefix(s.Start, checkpointScheme) {
		paths = append(paths, &s.Start)
	}
	if err := config.Absolute(paths...); err != nil {
		return err
	}
	if c.SFT != nil { // conversations are encoded for the model that is trained
		c.SFT.Tokenizer, c.SFT.Model = cmp.Or(c.SFT.Tokenizer, s.Tokenizer), s.Model
		if c.SFT.Template == modelfiles.TemplateAuto && s.Template != modelfiles.TemplateServer {
			c.SFT.Template = s.Template
		}
	}
	return s.validate(c)
}

func (s *Tinker) validate(c *config.Config) error {
	var url, model, norm, loss, length, template, beside, samplers error
	if s.BaseURL == "" {
		url = errors.New("base_url is missing: want the address of a Tinker server (for example http://127.0.0.1:8000)")
	} else if _, err := tinker.NewClient(tinker.ClientOptions{URL: s.BaseURL}); err != nil {
		url = err
	}
	if s.Model == "" {
		model = errors.New("model is missing: want the base model, as the server names it")
	}
	if s.Normalisation != normProbe && s.Normalisation != normSum && s.Normalisation != normMean {
		norm = fmt.Errorf("normalisation is %q: want %s, %s or %s", s.Normalisation, normProbe, normSum, normMean)
	}
	if templates := append(modelfiles.Templates(), modelfiles.TemplateServer); !slices.Contains(templates, s.Template) {
		template = fmt.Errorf("template is %q: want one of %s", s.Template, strings.Join(templates, ", "))
	}
	if c.Evaluate.Workers > 0 && !s.sampled() {
		beside = fmt.Errorf("evaluate.workers is %d, but the server samples the newest policy only, and a policy that is "+
			"measured beside the training is an older one; to fix: set it to 0, or name trainer.samplers", c.Evaluate.Workers)
	}
	switch {
	case len(s.Samplers) > 0 && s.SamplersFile != "":
		samplers = errors.New("samplers and samplers_file both name endpoints; to fix: leave out one")
	case s.sampled() && s.Rank == 0:
		samplers = errors.New("samplers load adapters, and rank 0 has none; to fix: set rank, or leave out samplers")
	case !s.sampled() && s.Template == modelfiles.TemplateServer:
		samplers = errors.New("template is server without samplers: want the endpoints of the vLLM servers that write " +
			"conversations")
	case !s.sampled() && s.Adapters != "":
		samplers = errors.New("adapters is given without samplers: want the endpoints of the vLLM servers that read them")
	}
	if s.MaxLength < c.Algorithm.MaxLength {
		length = fmt.Errorf("max_length is %d: want algorithm.max_length or more, %d", s.MaxLength, c.Algorithm.MaxLength)
	}
	o := c.Optimizer
	several := o.Minibatches > 1 || o.Epochs > 1
	if o.Minibatches > 1 && c.Rollouts.MaxStaleness > 0 && !s.sampled() {
		loss = errors.New("the server samples nothing between the optimizer steps of an update, so the groups of later " +
			"minibatches would never be complete; to fix: set optimizer.minibatches to 1, rollouts.max_staleness to 0, or " +
			"trainer.samplers")
	}
	// An invalid algorithm is reported separately.
	if a, err := c.Algorithm.Resolve(); c.Objective != config.Imitation && err == nil {
		loss = cmp.Or(loss, tinker.Supports(a.Objective))
		if loss == nil && several && a.Objective.Decoupled {
			loss = errors.New("decoupled needs optimizer.minibatches and optimizer.epochs of 1 here: " +
				"the server does not keep the policy that the batch began with")
		}
	}
	return errors.Join(url, model, norm, template, loss, length, beside, samplers)
}

// sampled reports whether vLLM servers sample.
func (s *Tinker) sampled() bool { return len(s.Samplers) > 0 || s.SamplersFile != "" }

// Open connects to the server and waits for it.
func (s *Tinker) Open(ctx context.Context, o part.TrainerOptions) (part.Trainer, error) {
	dir, missing := modelfiles.Find(s.Tokenizer, s.Model, o.World.Getenv)
	vocabulary, unknown := s.Vocabulary, error(nil)
	if vocabulary == 0 {
		vocabulary, unknown = modelfiles.Vocabulary(cmp.Or(dir, s.Model)) // some environments need no tokenizer
	}
	codec, err := s.codec(o, dir, missing, vocabulary)
	if err := cmp.Or(err, unknown); err != nil {
		return part.Trainer{}, err
	}
	var samplers tinker.Samplers
	if !o.Imitates { // nothing is sampled
		adapters, err := s.adapters(o.Dir)
		if err != nil {
			return part.Trainer{}, err
		}
		samplers = tinker.Samplers{
			URLs: s.Samplers, File: s.SamplersFile, Key: o.World.Getenv("OPENAI_API_KEY"), Dir: adapters, Turns: o.Calls,
		}
	}
	start, err := s.start()
	if err != nil {
		return part.Trainer{}, err
	}
	client, err := tinker.NewClient(tinker.ClientOptions{
		URL: s.BaseURL, Key: o.World.Getenv(tinker.KeyVariable), Patience: time.Duration(s.Patience), Log: o.World.Log,
		LoRASync: s.LoRASync,
	})
	if err != nil {
		return part.Trainer{}, err
	}
	trainer, err := tinker.Open(ctx, tinker.Options{
		Client: client, Start: start,
		// Servers take 31 bits of the seed.
		Model: tinker.ModelOptions{Base: s.Model, Rank: s.Rank, Seed: int64(o.Seed & 0x7fffffff)},
		Known: s.known(), Vocabulary: vocabulary, MaxLength: s.MaxLength, Dir: o.Dir, Codec: codec,
		Samplers: samplers,
		Check:    tinker.Check{Tokens: s.CheckTokens, Tolerance: s.CheckTolerance},
	})
	if err != nil {
		client.Close()
		return part.Trainer{}, err
	}
	return part.Trainer{
		Pretrained: true, Experts: modelfiles.Experts(cmp.Or(dir, s.Model)),
		Trainer: trainer, MaxContext: trainer.MaxContext(), Samplers: trainer.Samplers, Gauges: trainer.Gauges,
		Accepts: trainer.Accepts, Imitate: trainer.Imitate,
	}, nil
}

const checkpointScheme = "tinker://"

// start returns the address of the checkpoint to begin with; empty if there is none.
func (s *Tinker) start() (string, error) {
	if s.Start == "" || strings.HasPrefix(s.Start, checkpointScheme) {
		return s.Start, nil
	}
	last, err := record.ReadLast(s.Start)
	if err != nil {
		return "", fmt.Errorf("start: %w; want the directory of a run with a checkpoint, or a tinker:// address", err)
	}
	address, err := tinker.Saved(filepath.Join(s.Start, record.CheckpointsDir), last.Checkpoint)
	if err != nil {
		return "", fmt.Errorf("start: %w", err)
	}
	return address, nil
}

// adapters returns the directory for a run's adapters. No other run may use it, because what a killed run has left
// there is removed.
func (s *Tinker) adapters(checkpoints string) (string, error) {
	run, err := filepath.Abs(checkpoints)
	if err != nil || s.Adapters == "" {
		return filepath.Join(run, "adapters"), err
	}
	h := fnv.New64a()
	h.Write([]byte(run))
	return filepath.Join(s.Adapters, fmt.Sprintf("%s-%08x", filepath.Base(filepath.Dir(run)), uint32(h.Sum64()))), nil
}

// known returns the properties of the server that need not be probed. It does not assume that the server recognises
// repeated requests.
func (s *Tinker) known() *tinker.Probe {
	mean := s.Normalisation == normMean
	if s.Normalisation == normProbe {
		return nil
	}
	return &tinker.Probe{Normalisation: tinker.Normalisation{Tokens: mean, Sequences: mean}}
}

// codec returns the codec of the environment's own language if it has one, otherwise the model's, whose files are in
// dir; missing says why they are not known. The codec is nil if nothing is sampled, and if samplers write
// conversations themselves, as they do if the model's template is not known. vocabulary is 0 if it is not known.
func (s *Tinker) codec(o part.TrainerOptions, dir string, missing error, vocabulary int) (tinker.Codec, error) {
	if o.Imitates {
		return nil, nil
	}
	if o.Language != nil {
		if language, err := o.Language(); err == nil {
			return embedded.NewCodec(language.Vocabulary)
		}
	}
	if s.Template == modelfiles.TemplateServer {
		return nil, nil
	}
	if missing != nil {
		return nil, missing
	}
	path := filepath.Join(dir, modelfiles.TokenizerFile)
	tok, err := tokenizer.Load(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if vocabulary > 0 && tok.Size() > vocabulary {
		return nil, fmt.Errorf("%s has %d ids, and the model %d; to fix: set trainer.tokenizer to the tokenizer of the "+
			"model that is trained", path, tok.Size(), vocabulary)
	}
	codec, err := modelfiles.Codec(tok, dir, s.Template)
	if err != nil && s.sampled() && s.Template == modelfiles.TemplateAuto {
		o.World.Logger().Info("the samplers write conversations", "model", s.Model, "because", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return codec, nil
}
