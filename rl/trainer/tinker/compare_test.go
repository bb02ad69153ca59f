package tinker_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/agent"
	"deepswe/agent/tokenizer"
	"deepswe/env"
	"deepswe/env/testkit"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/trainer/trainertest"
)

// sampled is an endpoint that samples from a policy, and tokenizes with a tokenizer of its own.
type sampled struct {
	agent.Model
	tokens *tokenizer.Tokenizer
	change func(*agent.Sample)
	// size is the number of the model's ids; 0 if it cannot score.
	size int
}

func (s sampled) Score(_ context.Context, ids []int32) ([]float64, error) {
	if int(slices.Max(ids)) >= s.size {
		return nil, errors.New("Token id is out of vocabulary")
	}
	return make([]float64, len(ids)-1), nil
}

func (s sampled) Tokenize(_ context.Context, text string) ([]int32, error) {
	return s.tokens.Encode(text), nil
}

func (s sampled) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	r.Messages, r.MaxTokens = []agent.Message{{Role: agent.RoleUser, Content: "1"}}, 8
	reply, err := s.Model.Complete(ctx, r)
	if err == nil && s.change != nil {
		s.change(reply.Tokens)
	}
	return reply, err
}

const tokenizers = "../../../agent/tokenizer/testdata/"

func loadTokenizer(t *testing.T, name string) *tokenizer.Tokenizer {
	t.Helper()
	tokens, err := tokenizer.Load(tokenizers + name)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// doctor says whether trainer and sampler have the same model and tokenizer.
func TestTrainerAndSampler(t *testing.T) {
	t.Parallel()
	s, trainer := server(t, trainertest.Options{}, nil)
	policy, err := trainer.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	qwen, err := os.ReadFile(tokenizers + "qwen.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "tokenizer.json"), string(qwen))
	testkit.WriteFile(t, filepath.Join(dir, "relative.json"), strings.ReplaceAll(string(qwen), "<tool_response>", "<result>"))
	relative, err := tokenizer.Load(filepath.Join(dir, "relative.json"))
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]*tokenizer.Tokenizer{
		"qwen.json": loadTokenizer(t, "qwen.json"), "gpt2.json": loadTokenizer(t, "gpt2.json"), "relative.json": relative,
	}
	for _, test := range []struct {
		name, config, tokenizer string
		change                  func(*agent.Sample)
		size                    int // of the sampler's vocabulary
		check                   string
		status                  env.Status
		detail                  string
	}{
		{"alike", `{"vocab_size": 431}`, "qwen.json", nil, 431, "trainer and sampler", env.OK, "over 8 tokens"},
		{"alike", `{"vocab_size": 431}`, "qwen.json", nil, 431, "trainer tokenizer", env.OK, "the same"},
		{"alike", `{"vocab_size": 431}`, "qwen.json", nil, 431, "trainer vocabulary", env.OK, "431 ids"},
		{"padded", `{"vocab_size": 512}`, "qwen.json", nil, 431, "trainer vocabulary", env.OK, "512 ids, of which the tokenizer uses 431"},
		{"relatives", `{"vocab_size": 431}`, "relative.json", nil, 431, "trainer tokenizer", env.Failed,
			`they first differ at "<tool_response>", which is the id 427 here`},
		{"alike", `{"vocab_size": 431}`, "qwen.json", nil, 431, "sampler vocabulary", env.OK, "431 ids, as the trainer's"},
		{"padded less", `{"vocab_size": 512}`, "qwen.json", nil, 431, "sampler vocabulary", env.Warning,
			"has 431 ids and the trainer's 512, of which the tokenizer uses 431: they are padded differently"},
		{"padded more", `{"vocab_size": 431}`, "qwen.json", nil, 448, "sampler vocabulary", env.Warning,
			"a run stops when an id is sampled that the trainer does not have"},
		{"a smaller sampler", `{"vocab_size": 431}`, "qwen.json", nil, 400, "sampler vocabulary", env.Failed,
			"has 400 ids, and the trainer's tokenizer uses 431: it is another model"},
		{"any id", `{"vocab_size": 431}`, "qwen.json", nil, math.MaxInt, "sampler vocabulary", env.Skipped, "any id"},
		{"no scores", `{"vocab_size": 431}`, "qwen.json", nil, 0, "sampler vocabulary", env.Skipped, "cannot score"},
		{"a smaller model", `{"vocab_size": 400}`, "qwen.json", nil, 431, "trainer vocabulary", env.Failed, "do not belong together"},
		{"no number", `{}`, "qwen.json", nil, 431, "trainer vocabulary", env.Skipped, "431 ids"},
		{"another tokenizer", `{"vocab_size": 431}`, "gpt2.json", nil, 431, "trainer tokenizer", env.Failed,
			"they first differ at"},
		{"other weights", `{"vocab_size": 431}`, "qwen.json", func(s *agent.Sample) {
			for i := range s.Logprobs {
				s.Logprobs[i] -= 2
			}
		}, 431, "trainer and sampler", env.Failed, "different weights"},
		{"another precision", `{"vocab_size": 431}`, "qwen.json", func(s *agent.Sample) {
			for i := range s.Logprobs {
				s.Logprobs[i] -= 0.1
			}
		}, 431, "trainer and sampler", env.Warning, "over 8 tokens"},
		{"an id that the trainer does not have", `{"vocab_size": 431}`, "qwen.json", func(s *agent.Sample) {
			s.CompletionIDs[3] = 200
		}, 431, "trainer and sampler", env.Failed, ""},
		{"no logprobs", `{"vocab_size": 431}`, "qwen.json", func(s *agent.Sample) { s.Logprobs = nil }, 431, "trainer and sampler",
			env.Skipped, "no token ids with log-probabilities"},
	} {
		testkit.WriteFile(t, filepath.Join(dir, "config.json"), test.config)
		client, err := tinker.NewClient(tinker.ClientOptions{URL: s.URL()})
		if err != nil {
			t.Fatal(err)
		}
		i := tinker.Inspection{Client: client, Base: s.Base(), Rank: 8, Tokenizer: dir,
			Sampler: sampled{policy.Model, tokens[test.tokenizer], test.change, test.size}}
		found := false
		for _, f := range i.Inspect(t.Context()) {
			if f.Check != test.check {
				continue
			}
			found = true
			if f.Status != test.status || !strings.Contains(f.Detail, test.detail) {
				t.Errorf("%s: %s is %s: %s", test.name, f.Check, f.Status, f.Detail)
			}
		}
		if !found {
			t.Errorf("%s: there is no check %s", test.name, test.check)
		}
		client.Close()
	}
}

// The time of a step is estimated from a few of its rows, whose gradient is cleared afterwards.
func TestSpeedOfATrainer(t *testing.T) {
	t.Parallel()
	s := trainertest.New(t, trainertest.Options{Language: digits()})
	client, err := tinker.NewClient(tinker.ClientOptions{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	i := tinker.Inspection{Client: client, Base: s.Base(), Rank: 8, Rows: 20, Length: 6}
	before := s.Count("forward_backward")
	said := ""
	for _, f := range i.Inspect(t.Context()) {
		if f.Check == "trainer speed" {
			said = string(f.Status) + ": " + f.Detail
		}
	}
	if !strings.HasPrefix(said, "ok: a step of 20 rows of 6 tokens takes about ") || !strings.Contains(said, "with 8 of") {
		t.Errorf("got %q", said)
	}
	if steps, passes := s.Count("optim_step"), s.Count("forward_backward")-before; steps < passes {
		t.Errorf("%d passes, and %d steps that clear them", passes, steps)
	}
}
