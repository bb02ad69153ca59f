package tinker_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/agent"
	"deepswe/agent/tokenizer"
	"deepswe/env"
	"deepswe/env/testkit"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/trainer/trainertest"
)

// sampled is an endpoint that samples from a policy, and tokenizes as a file says.
type sampled struct {
	agent.Model
	tokens *tokenizer.Tokenizer
	change func(*agent.Sample)
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

// doctor says whether model and tokenizer of the trainer are the sampler's.
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
	for _, test := range []struct {
		name, config, tokenizer string
		change                  func(*agent.Sample)
		check                   string
		status                  env.Status
		detail                  string
	}{
		{"alike", `{"vocab_size": 431}`, "qwen.json", nil, "trainer and sampler", env.OK, "over 8 tokens"},
		{"alike", `{"vocab_size": 431}`, "qwen.json", nil, "trainer tokenizer", env.OK, "the same"},
		{"alike", `{"vocab_size": 431}`, "qwen.json", nil, "trainer vocabulary", env.OK, "431 ids"},
		{"padded", `{"vocab_size": 512}`, "qwen.json", nil, "trainer vocabulary", env.OK, "512 ids, of which the tokenizer uses 431"},
		{"a smaller model", `{"vocab_size": 400}`, "qwen.json", nil, "trainer vocabulary", env.Failed, "do not belong together"},
		{"no number", `{}`, "qwen.json", nil, "trainer vocabulary", env.Skipped, "431 ids"},
		{"another tokenizer", `{"vocab_size": 431}`, "gpt2.json", nil, "trainer tokenizer", env.Failed, "they first differ at"},
		{"other weights", `{"vocab_size": 431}`, "qwen.json", func(s *agent.Sample) {
			for i := range s.Logprobs {
				s.Logprobs[i] -= 2
			}
		}, "trainer and sampler", env.Failed, "different weights"},
		{"another precision", `{"vocab_size": 431}`, "qwen.json", func(s *agent.Sample) {
			for i := range s.Logprobs {
				s.Logprobs[i] -= 0.1
			}
		}, "trainer and sampler", env.Warning, "over 8 tokens"},
		{"an id that the trainer does not have", `{"vocab_size": 431}`, "qwen.json", func(s *agent.Sample) {
			s.CompletionIDs[3] = 200
		}, "trainer and sampler", env.Failed, ""},
		{"no logprobs", `{"vocab_size": 431}`, "qwen.json", func(s *agent.Sample) { s.Logprobs = nil }, "trainer and sampler",
			env.Skipped, "no token ids with log-probabilities"},
	} {
		testkit.WriteFile(t, filepath.Join(dir, "config.json"), test.config)
		client, err := tinker.NewClient(tinker.ClientOptions{URL: s.URL()})
		if err != nil {
			t.Fatal(err)
		}
		i := tinker.Inspection{Client: client, Base: s.Base(), Rank: 8, Tokenizer: dir,
			Sampler: sampled{policy.Model, loadTokenizer(t, test.tokenizer), test.change}}
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
			t.Errorf("%s: nothing is said of %s", test.name, test.check)
		}
		client.Close()
	}
}
