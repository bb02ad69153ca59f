package embedded

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"deepswe/agent"
	"deepswe/rl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVocabularyIsPrefixFree(t *testing.T) {
	t.Parallel()
	for name, v := range map[string][]string{
		"none": nil, "empty token": {"a", ""}, "twice": {"a", "a"}, "prefix": {"ab", "a"}, "prefix the other way": {"a",
			"ab"},
	} {
		if _, err := New(Options{Language: Language{Vocabulary: v}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Sampled ids decode to text that is encoded as the same ids. Otherwise no two turns would share a row.
func TestTextAndIDsAreTheSame(t *testing.T) {
	t.Parallel()
	tok, err := newPrefixes([]string{"```Left```", "```Up```", "_", "O", "hm ", "héé", "."})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(rapid.Int32Range(0, tok.end-1)).Draw(t, "ids")
		if got := tok.encode(nil, tok.decode(ids), nil); !slices.Equal(got, ids) {
			t.Fatalf("%v reads %q and comes back as %v", ids, tok.decode(ids), got)
		}
	})
}

func TestUnknownBytes(t *testing.T) {
	t.Parallel()
	tok, err := newPrefixes([]string{"a", "bcd"})
	if err != nil {
		t.Fatal(err)
	}
	got := tok.render([]agent.Message{{Content: "abcx"}}, 0)
	if want := []int32{tok.user, 0, tok.unknown, tok.unknown, tok.unknown, tok.end, tok.assistant}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Every prompt begins with the one before it and what was sampled after that, whatever was sampled.
func TestPromptsExtendEachOther(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyOptions())
	shake(p, 0.5)
	for seed := range int64(50) {
		ro := conversation(t, p, 6, seed)
		if s := rl.Measure(&ro, 0).Shape; s.Rows != 1 {
			t.Fatalf("seed %d: %d rows: %+v", seed, s.Rows, s.Splits)
		}
	}
}

func ask(t *testing.T, p *Trainer, text string, s agent.Sampling, maxTokens int) agent.Reply {
	t.Helper()
	return askModel(t, sampler{p, p.published}, text, s, maxTokens)
}

func askModel(t *testing.T, m agent.Model, text string, s agent.Sampling, maxTokens int) agent.Reply {
	t.Helper()
	r, err := m.Complete(t.Context(), agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: text}}, Sampling: s, MaxTokens: maxTokens, Tokens: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSamplingFollowsTheSoftmax(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyOptions())
	shake(p, 0.7)
	for _, temperature := range []float64{1, 0.5} {
		counts, logprobs := map[int32]float64{}, map[int32]float64{}
		const n = 5000
		for seed := range int64(n) {
			r := ask(t, p, "ab", agent.Sampling{Temperature: &temperature, Seed: &seed}, 1)
			id := r.Tokens.CompletionIDs[0]
			counts[id]++
			logprobs[id] = r.Tokens.Logprobs[0]
		}
		total := 0.0
		for id, lp := range logprobs {
			q := math.Exp(lp)
			total += q
			// Four standard deviations of a binomial. The seeds are fixed, so this passes always or never.
			if got := counts[id] / n; math.Abs(got-q) > 4*math.Sqrt(q*(1-q)/n) {
				t.Errorf("temperature %g: token %d has probability %.4f and came %.4f of the time", temperature, id, q, got)
			}
		}
		if math.Abs(total-1) > 1e-3 {
			t.Errorf("temperature %g: probabilities add up to %v", temperature, total)
		}
	}
}

func TestFreshPolicyIsUniform(t *testing.T) {
	t.Parallel()
	r := ask(t, newPolicy(t, tinyOptions()), "ab", agent.Sampling{Seed: new(int64(3))}, 0)
	for _, lp := range r.Tokens.Logprobs {
		if math.Abs(lp+math.Log(4)) > 1e-12 {
			t.Errorf("logprob %v: want that of one in four", lp)
		}
	}
}

func TestSeeds(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyOptions())
	answers := map[string]int{}
	for seed := range int64(30) {
		one, two := ask(t, p, "ab", agent.Sampling{Seed: &seed}, 0), ask(t, p, "ab", agent.Sampling{Seed: &seed}, 0)
		if !slices.Equal(one.Tokens.CompletionIDs, two.Tokens.CompletionIDs) {
			t.Fatalf("seed %d gave %v and %v", seed, one.Tokens.CompletionIDs, two.Tokens.CompletionIDs)
		}
		answers[one.Message.Content]++
	}
	if len(answers) < 5 {
		t.Errorf("30 seeds gave only %d answers", len(answers))
	}
	other := map[string]int{}
	for range 30 {
		other[ask(t, p, "ab", agent.Sampling{}, 0).Message.Content]++
	}
	if len(other) < 5 {
		t.Errorf("30 calls without a seed gave only %d answers", len(other))
	}
}

func TestGreedyTakesTheLikeliest(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyOptions())
	shake(p, 0.7)
	want := ask(t, p, "ab", agent.Sampling{Temperature: new(0.0)}, 1)
	if want.Tokens.Logprobs[0] != 0 {
		t.Errorf("logprob %v: a greedy choice is certain", want.Tokens.Logprobs[0])
	}
	counts := map[int32]int{}
	for seed := range int64(500) {
		counts[ask(t, p, "ab", agent.Sampling{Seed: &seed}, 1).Tokens.CompletionIDs[0]]++
	}
	for id, n := range counts {
		if n > counts[want.Tokens.CompletionIDs[0]] {
			t.Errorf("token %d is likelier than the greedy %d", id, want.Tokens.CompletionIDs[0])
		}
	}
}

func TestRefusedSampling(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyOptions())
	for name, s := range map[string]agent.Sampling{
		"top_p": {TopP: new(0.9)}, "top_k": {TopK: new(20)}, "min_p": {MinP: new(0.1)},
		"repetition_penalty": {RepetitionPenalty: new(1.1)}, "temperature": {Temperature: new(math.NaN())},
	} {
		_, err := sampler{p, p.published}.Complete(t.Context(), agent.Request{Sampling: s})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	neutral := agent.Sampling{TopP: new(1.0), TopK: new(-1), MinP: new(0.0), RepetitionPenalty: new(1.0)}
	if _, err := (sampler{p, p.published}).Complete(t.Context(), agent.Request{Sampling: neutral}); err != nil {
		t.Errorf("neutral settings: %v", err)
	}
}

func TestMessageBeyondTheWindow(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyOptions())
	_, err := sampler{p, p.published}.Complete(t.Context(),
		agent.Request{Messages: []agent.Message{{Role: agent.RoleUser, Content: "ababab"}}})
	if !errors.Is(err, agent.ErrContextOverflow) {
		t.Errorf("got %v", err)
	}
}

// oneUpdate trains on a fresh batch.
func oneUpdate(t *testing.T, p *Trainer) {
	t.Helper()
	if _, err := p.ForwardBackward(t.Context(), batch(t, p, 9, 3), rl.Objective{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Step(t.Context(), rl.Optimizer{LearningRate: 0.01, ClipNorm: 1, WeightDecay: 0.01}); err != nil {
		t.Fatal(err)
	}
}

func TestSaveAndLoadAreExact(t *testing.T) {
	t.Parallel()
	o := tinyOptions()
	o.Dir = filepath.Join(t.TempDir(), "checkpoints")
	p := newPolicy(t, o)
	publish := func(p *Trainer) {
		if _, err := p.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	oneUpdate(t, p)
	publish(p)
	oneUpdate(t, p) // not published, so the sampler is a version behind
	ask(t, p, "a", agent.Sampling{}, 0)
	if err := p.Save(t.Context(), "half-way"); err != nil {
		t.Fatal(err)
	}
	o.Seed = 99
	q := newPolicy(t, o)
	if err := q.Load(t.Context(), "half-way"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, x := range []*Trainer{p, q} {
			ask(t, x, "a", agent.Sampling{}, 0)
			oneUpdate(t, x)
			publish(x)
		}
		if p.published.version != q.published.version || !slices.Equal(p.encode(), q.encode()) {
			t.Fatal("the loaded policy differs after further updates")
		}
	}
}

func TestPublishingTwiceIsOneVersion(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyOptions())
	for want := range int64(3) {
		for range 2 {
			if got, err := p.Publish(t.Context()); err != nil || got.Version != want {
				t.Errorf("version %d, %v: want %d", got.Version, err, want)
			}
		}
		oneUpdate(t, p)
	}
}

func TestDamagedCheckpoints(t *testing.T) {
	t.Parallel()
	o := tinyOptions()
	o.Dir = t.TempDir()
	p := newPolicy(t, o)
	if err := p.Save(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	before := p.encode()
	good, err := os.ReadFile(filepath.Join(o.Dir, "x.policy"))
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for name, data := range map[string][]byte{
		"empty": nil, "another file": []byte("hello"), "magic only": []byte(checkpointMagic),
		"cut off": good[:len(good)-9], "one bit": flipped,
	} {
		if err := os.WriteFile(filepath.Join(o.Dir, "x.policy"), data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := p.Load(t.Context(), "x"); err == nil {
			t.Errorf("%s: loaded", name)
		}
		if !slices.Equal(before, p.encode()) {
			t.Fatalf("%s: a failed load changed the policy", name)
		}
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "x.policy"), good, 0o644); err != nil {
		t.Fatal(err)
	}
	o.Hidden = 7
	if err := newPolicy(t, o).Load(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "another network") {
		t.Errorf("another network: %v", err)
	}
	for _, name := range []string{"", ".", "../x", "a/b", ".hidden"} {
		if err := p.Save(t.Context(), name); err == nil {
			t.Errorf("saved under %q", name)
		}
	}
}

func TestCheckpointsLieBetweenUpdates(t *testing.T) {
	t.Parallel()
	o := tinyOptions()
	o.Dir = t.TempDir()
	p := newPolicy(t, o)
	if _, err := p.ForwardBackward(t.Context(), batch(t, p, 2, 1), rl.Objective{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Save(t.Context(), "x"); err == nil {
		t.Error("saved with a gradient waiting")
	}
}

// Adam with decoupled weight decay and clipping, for one weight, as in the papers.
func TestAdam(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyOptions())
	const at = 3
	w, m, v := p.weights[at], 0.0, 0.0
	o := rl.Optimizer{LearningRate: 0.1, Beta1: 0.8, Beta2: 0.95, Epsilon: 1e-6, WeightDecay: 0.02, ClipNorm: 2}
	for k, g := range []float64{0.5, -3, 1.5, 0} {
		p.gradient[at], p.gradient[at+1] = g, 1
		norm := math.Hypot(g, 1)
		s, err := p.Step(t.Context(), o)
		if err != nil || math.Abs(s.GradientNorm-norm) > 1e-12 {
			t.Fatalf("step %d: norm %v, %v: want %v", k, s.GradientNorm, err, norm)
		}
		g *= min(1, 2/norm)
		m = 0.8*m + 0.2*g
		v = 0.95*v + 0.05*g*g
		n := float64(k + 1)
		w -= 0.1 * (m/(1-math.Pow(0.8, n))/(math.Sqrt(v/(1-math.Pow(0.95, n)))+1e-6) + 0.02*w)
		if math.Abs(p.weights[at]-w) > 1e-12 {
			t.Fatalf("step %d: weight %v, want %v", k, p.weights[at], w)
		}
	}
}

func TestGradientThatIsNotFinite(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyOptions())
	before := p.encode()
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		p.gradient[5] = bad
		s, err := p.Step(t.Context(), rl.Optimizer{LearningRate: 0.1})
		if err != nil || !s.Skipped {
			t.Errorf("%v: %+v, %v: want a skipped step", bad, s, err)
		}
	}
	if !slices.Equal(before, p.encode()) {
		t.Error("a skipped step changed the policy")
	}
	if p.gradient[5] != 0 {
		t.Error("a skipped step left its gradient behind")
	}
}

// A published policy can be asked at any time, even while the weights change, and always answers the same.
func TestSamplingWhileTraining(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyOptions())
	first, err := p.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seeded := agent.Sampling{Temperature: new(1.0), Seed: new(int64(5))}
	before := askModel(t, first.Model, "ab", seeded, 0).Tokens
	var current atomic.Pointer[rl.Policy]
	current.Store(&first)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					askModel(t, current.Load().Model, "ab", agent.Sampling{}, 0)
				}
			}
		})
	}
	for range 20 {
		oneUpdate(t, p)
		next, err := p.Publish(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		current.Store(&next)
	}
	close(stop)
	wg.Wait()
	if after := askModel(t, first.Model, "ab", seeded, 0).Tokens; !reflect.DeepEqual(before, after) {
		t.Errorf("the first policy answered %v, and %v after 20 updates", before, after)
	}
	if after := askModel(t, current.Load().Model, "ab", seeded, 0).Tokens; reflect.DeepEqual(before, after) {
		t.Error("the last policy answers like the first")
	}
}

func FuzzDecodeCheckpoint(f *testing.F) {
	p, err := New(tinyOptions())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p.encode())
	f.Add([]byte(checkpointMagic + "\xff\xff\xff\xff12345678"))
	f.Fuzz(func(t *testing.T, data []byte) {
		q, err := New(tinyOptions())
		if err != nil {
			t.Fatal(err)
		}
		if q.decode(data) != nil && !slices.Equal(q.encode(), p.encode()) {
			t.Error("a failed decode changed the policy")
		}
	})
}
