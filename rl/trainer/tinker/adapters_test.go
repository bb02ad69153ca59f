package tinker_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/env/testkit"
	"deepswe/rl"
	"deepswe/rl/trainer/embedded"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/trainer/trainertest"
)

// samplers starts a trainer's server, and vLLM servers that sample for it.
func samplers(t *testing.T, n int) (*trainertest.Server, *tinker.Trainer, []*trainertest.VLLM, string) {
	t.Helper()
	s := trainertest.New(t, trainertest.Options{Language: digits()})
	var vllms []*trainertest.VLLM
	dir := filepath.Join(t.TempDir(), "adapters")
	urls := make([]string, n)
	for i := range n {
		vllms = append(vllms, trainertest.NewVLLM(t, s, codec(t)))
		urls[i] = vllms[i].URL
	}
	return s, openOn(t, s, tinker.Samplers{URLs: urls, Dir: dir}), vllms, dir
}

// TuFT's server keeps adapters on its own disk, and says where.
func TestAdaptersOnDisk(t *testing.T) {
	t.Parallel()
	s := trainertest.New(t, trainertest.Options{
		Language: digits(), TuFT: true, Sums: true, Wire: trainertest.Protobuf,
	})
	vllm := trainertest.NewVLLM(t, s, codec(t))
	trainer := openOn(t, s, tinker.Samplers{URLs: []string{vllm.URL}, Dir: filepath.Join(t.TempDir(), "adapters")})
	first := publish(t, trainer)
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	if second := publish(t, trainer); second.Version == first.Version {
		t.Errorf("the version is %d before an update and after it", second.Version)
	}
}

// SkyRL's GPU backends only hand out merged weights, but they write adapters to a directory from which their own
// samplers load them.
func TestAdaptersOfGPUBackends(t *testing.T) {
	t.Parallel()
	synced := t.TempDir()
	s := trainertest.New(t, trainertest.Options{
		Language: digits(), Dedups: true, Sums: true, Wire: trainertest.OnlyProtobuf, LoRASync: synced,
	})
	vllm := trainertest.NewVLLM(t, s, codec(t))
	on := func() tinker.Samplers {
		return tinker.Samplers{URLs: []string{vllm.URL}, Dir: filepath.Join(t.TempDir(), "adapters")}
	}
	_, err := openOn(t, s, on()).Publish(t.Context())
	if want := "to fix: set trainer.lora_sync_path"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without the directory: %v, want %q", err, want)
	}
	o := options(t, s, on(), codec(t), time.Second)
	o.Client = clientOf(t, tinker.ClientOptions{URL: s.URL(), LoRASync: synced})
	trainer, err := tinker.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = trainer.Close() })
	first := publish(t, trainer)
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	if second := publish(t, trainer); second.Version == first.Version {
		t.Errorf("the version is %d before an update and after it", second.Version)
	}
	if err := trainer.Save(t.Context(), "last"); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "exported")
	if err := tinker.DownloadAdapter(t.Context(), o.Client, o.Dir, "last", out); err != nil {
		t.Error(err)
	}
}

// If all weights are trained and the backend has its own engines, SkyRL's GPU backends sample the latest weights under
// the base model's name only. Where SkyRL was started again, these engines are gone, and the trainer is lost.
func TestAllWeightsOfGPUBackends(t *testing.T) {
	t.Parallel()
	s := trainertest.New(t, trainertest.Options{
		Language: digits(), Dedups: true, Wire: trainertest.OnlyProtobuf, Whole: true,
	})
	o := options(t, s, tinker.Samplers{}, codec(t), time.Second)
	o.Model.Rank = 0
	trainer, err := tinker.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = trainer.Close() })
	for range 2 {
		p := publish(t, trainer)
		reply, err := ask(t, p.Model, "a")
		if err != nil {
			t.Fatal(err)
		}
		if v := reply.Tokens.PolicyVersion; v == nil || *v != p.Version {
			t.Errorf("version %v, want %d", v, p.Version)
		}
		if err := learn(t, trainer); err != nil {
			t.Fatal(err)
		}
	}
	p := publish(t, trainer)
	s.Stop()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, p.Model, "a"); !errors.Is(err, rl.ErrTrainerLost) {
		t.Errorf("after a restart: %v", err)
	}
}

// withoutTemplate opens a trainer that knows no chat template, on one server that has the codec's.
func withoutTemplate(t *testing.T) (embedded.Codec, *trainertest.VLLM, *tinker.Trainer) {
	t.Helper()
	language := embedded.Language{Vocabulary: []string{"a", "b", "c"}, Window: 8, Reply: 8}
	own, err := embedded.NewCodec(language.Vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	s := trainertest.New(t, trainertest.Options{Language: language})
	vllm := trainertest.NewVLLM(t, s, own)
	on := tinker.Samplers{URLs: []string{vllm.URL}, Dir: t.TempDir()}
	trainer, err := tinker.Open(t.Context(), options(t, s, on, nil, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = trainer.Close() })
	return own, vllm, trainer
}

// Without a known chat template, the servers render conversations with their own, and every prompt still extends the
// one before it.
func TestSamplersWriteConversations(t *testing.T) {
	t.Parallel()
	own, _, trainer := withoutTemplate(t)
	p := publish(t, trainer)
	r := agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: "a b"}}, Tokens: true, Rollout: "a",
		Sampling: agent.OnPolicy(new(1.0)),
	}
	first, err := p.Model.Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if first.Message.Content != own.Reply(first.Tokens.CompletionIDs, r).Content {
		t.Errorf("the reply is %q, of the ids %v", first.Message.Content, first.Tokens.CompletionIDs)
	}
	r.Messages = append(r.Messages, first.Message, agent.Message{Role: agent.RoleUser, Content: "c"})
	r.Sampled, r.Fresh = first.Tokens, 2
	second, err := p.Model.Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(first.Tokens.PromptIDs, first.Tokens.CompletionIDs)
	if got := second.Tokens.PromptIDs; len(got) <= len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("the second prompt is %v, want it to begin with %v", got, want)
	}
	whole, err := own.Prompt(t.Context(), r)
	if err != nil || !slices.Equal(second.Tokens.PromptIDs, whole) {
		t.Errorf("the second prompt is %v, want %v: %v", second.Tokens.PromptIDs, whole, err)
	}
}

// Samplers whose template ends replies with no token of their own are refused before anything is sampled, and not taken
// for servers that are down.
func TestSamplersThatCannotExtend(t *testing.T) {
	t.Parallel()
	_, vllm, trainer := withoutTemplate(t)
	vllm.Unmark()
	_, err := trainer.Publish(t.Context())
	if !errors.Is(err, llm.ErrNoExtension) || !strings.Contains(err.Error(), "set trainer.template to auto") {
		t.Errorf("error %v", err)
	}
	if len(vllm.Prompts()) > 0 {
		t.Errorf("%d prompts were sampled from", len(vllm.Prompts()))
	}
}

func openOn(t *testing.T, s *trainertest.Server, on tinker.Samplers) *tinker.Trainer {
	t.Helper()
	trainer, err := openWith(t, s, on)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = trainer.Close() })
	return trainer
}

func openWith(t *testing.T, s *trainertest.Server, on tinker.Samplers) (*tinker.Trainer, error) {
	t.Helper()
	return openPatient(t, s, on, time.Second)
}

func openPatient(t *testing.T, s *trainertest.Server, on tinker.Samplers, patience time.Duration) (*tinker.Trainer,
	error) {
	t.Helper()
	return tinker.Open(t.Context(), options(t, s, on, codec(t), patience))
}

func options(
	t *testing.T, s *trainertest.Server, on tinker.Samplers, codec tinker.Codec, patience time.Duration,
) tinker.Options {
	t.Helper()
	return tinker.Options{
		Client: clientOf(t, tinker.ClientOptions{URL: s.URL(), Patience: patience}),
		Model:  tinker.ModelOptions{Base: s.Base(), Rank: 8, Seed: 1}, Vocabulary: s.Vocabulary(),
		Known: &tinker.Probe{Normalisation: tinker.Normalisation{Tokens: true, Sequences: true}},
		Dir:   t.TempDir(), Codec: codec, Samplers: on, Check: tinker.Check{Tokens: 64},
	}
}

func clientOf(t *testing.T, o tinker.ClientOptions) *tinker.Client {
	t.Helper()
	client, err := tinker.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func publish(t *testing.T, trainer *tinker.Trainer) rl.Policy {
	t.Helper()
	p, err := trainer.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ask(t *testing.T, m agent.Model, rollout string) (agent.Reply, error) {
	t.Helper()
	return m.Complete(t.Context(), agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: "1"}}, Tokens: true, Rollout: rollout,
		Sampling: agent.OnPolicy(new(1.0)),
	})
}

// Each version is an adapter of its own on every server, and the one before is unloaded. One server samples all turns
// of a rollout.
func TestSamplersLoadEachVersion(t *testing.T) {
	t.Parallel()
	_, trainer, vllms, dir := samplers(t, 2)
	for version := range int64(3) {
		p := publish(t, trainer)
		if p.Version != version || p.Gap.Max > trainertest.Tolerance || p.Gap.Tokens == 0 {
			t.Errorf("version %d is %+v", version, p)
		}
		for _, v := range vllms {
			testkit.Eventually(t, "only this version is loaded", func() bool {
				names := v.Loaded()
				return len(names) == 1 && strings.HasSuffix(names[0], "@"+string('0'+rune(version)))
			})
		}
		testkit.Eventually(t, "only this version is on the disk", func() bool {
			on, err := os.ReadDir(dir)
			return err == nil && len(on) == 1
		})
		for range 3 {
			for _, rollout := range []string{"a", "b"} {
				reply, err := ask(t, p.Model, rollout)
				if err != nil {
					t.Fatal(err)
				}
				if got := reply.Tokens.PolicyVersion; got == nil || *got != version {
					t.Errorf("version %d: the reply is of %v", version, got)
				}
			}
		}
		if err := learn(t, trainer); err != nil {
			t.Fatal(err)
		}
	}
	if err := trainer.Close(); err != nil {
		t.Fatal(err)
	}
	for _, v := range vllms {
		served := 0
		for _, n := range v.Served() {
			served += n
		}
		// Each of three checks samples four sequences, and each version three turns of one rollout.
		if served != 3*4+3*3 {
			t.Errorf("%s gave %d replies", v.URL, served)
		}
		if names := v.Loaded(); len(names) > 0 {
			t.Errorf("after the end %s has %q", v.URL, names)
		}
	}
}

// A server that was restarted loads the adapter again, and another server replaces one that is gone.
func TestSamplersThatFail(t *testing.T) {
	t.Parallel()
	_, trainer, vllms, _ := samplers(t, 2)
	p := publish(t, trainer)
	if _, err := ask(t, p.Model, "a"); err != nil {
		t.Fatal(err)
	}
	vllms[0].Restart()
	vllms[1].Restart()
	if _, err := ask(t, p.Model, "a"); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	vllms[0].Set(trainertest.Down)
	for _, rollout := range []string{"a", "b"} {
		if _, err := ask(t, p.Model, rollout); err != nil {
			t.Errorf("with one of two servers: %v", err)
		}
	}
	vllms[0].Set(trainertest.Up)
}

// An older policy whose adapter was unloaded answers with the newest version.
func TestSamplersAnswerAsTheNewest(t *testing.T) {
	t.Parallel()
	_, trainer, _, _ := samplers(t, 1)
	old := publish(t, trainer)
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	publish(t, trainer)
	reply, err := ask(t, old.Model, "")
	if err != nil || *reply.Tokens.PolicyVersion != 1 {
		t.Errorf("%+v, %v", reply.Tokens, err)
	}
}

// Adapters that a killed run has left are unloaded, and nothing else is.
func TestSamplersForgetAKilledRun(t *testing.T) {
	t.Parallel()
	s := trainertest.New(t, trainertest.Options{Language: digits()})
	v := trainertest.NewVLLM(t, s, codec(t))
	dir := t.TempDir()
	left := filepath.Join(dir, "deepswe-1")
	if err := os.Mkdir(left, 0o755); err != nil {
		t.Fatal(err)
	}
	v.Put("deepswe-1@4", left)
	v.Put("another", "/srv/another")
	trainer := openOn(t, s, tinker.Samplers{URLs: []string{v.URL}, Dir: dir})
	if names := v.Loaded(); len(names) != 1 || names[0] != "another" {
		t.Errorf("it has %q", names)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the adapter is still there: %v", err)
	}
	publish(t, trainer)
}

func TestSamplersThatCannotLoad(t *testing.T) {
	t.Parallel()
	s, trainer, vllms, _ := samplers(t, 1)
	vllms[0].Fix()
	if _, err := trainer.Publish(t.Context()); !errors.Is(err, tinker.ErrSampler) ||
		!strings.Contains(err.Error(), "VLLM_ALLOW_RUNTIME_LORA_UPDATING") {
		t.Errorf("%v", err)
	}
	for _, url := range []string{"nowhere", "http://a:b@c", "http://127.0.0.1:1"} {
		if _, err := openWith(t, s, tinker.Samplers{URLs: []string{url}, Dir: t.TempDir()}); err == nil ||
			strings.Contains(err.Error(), "a:b") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A sampler whose weights are not those that it claims stops the run, even if the others are right.
func TestSamplerThatParts(t *testing.T) {
	t.Parallel()
	s, trainer, _, _ := samplers(t, 2)
	publish(t, trainer)
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	s.Inject("save_weights_for_sampler", trainertest.Fault{Stale: true})
	_, err := trainer.Publish(t.Context())
	if !errors.Is(err, rl.ErrApart) || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("%v", err)
	}
}

// If rows are short, only as much of a sample is compared as the trainer takes. A limit that leaves nothing of the
// reply is refused.
func TestCheckOfShortRows(t *testing.T) {
	t.Parallel()
	s := trainertest.New(t, trainertest.Options{Language: digits()})
	for length, fits := range map[int]bool{8: false, 12: true} { // the prompt has 8 tokens
		on := tinker.Samplers{URLs: []string{trainertest.NewVLLM(t, s, codec(t)).URL}, Dir: t.TempDir()}
		o := options(t, s, on, codec(t), time.Second)
		o.MaxLength, o.Check.Tokens = length, 256
		trainer, err := tinker.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = trainer.Close() })
		if _, err = trainer.Publish(t.Context()); (err == nil) != fits {
			t.Errorf("a limit of %d tokens: %v", length, err)
		}
	}
}
