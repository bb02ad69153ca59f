package tinker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/rl"
	"deepswe/rl/trainer/embedded"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/trainer/trainertest"
)

// digits is a language of ten words.
func digits() embedded.Language {
	words := make([]string, 10)
	for i := range words {
		words[i] = strconv.Itoa(i)
	}
	return embedded.Language{Vocabulary: words, Window: 8, Reply: 8}
}

func codec(t testing.TB) embedded.Codec {
	t.Helper()
	c, err := embedded.NewCodec(digits().Vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]trainertest.Options{
		"as SkyRL 0.3.0 on JAX": {},
		"as SkyRL 0.4.0 on JAX": {Dedups: true, Wire: trainertest.OnlyProtobuf},
		"as hosted servers":     {Sums: true, Dedups: true, Wire: trainertest.Either},
		"as TuFT":               {Sums: true, TuFT: true, Wire: trainertest.Protobuf},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Language = digits()
			s := trainertest.New(t, o)
			conform(t, target{
				URL: s.URL(), Base: s.Base(), Vocabulary: s.Vocabulary(), Codec: codec(t), Reply: 8, CheckTokens: 64,
				LearningRate: 0.05, Ordered: o.TuFT,
			})
			if n := s.Models(); n != 0 && !o.TuFT {
				t.Errorf("%d models are left on the server", n)
			}
		})
	}
}

// TestRealServer runs the same checks on SkyRL's own server.
func TestRealServer(t *testing.T) {
	url, base := trainertest.RealServer(t)
	conform(t, target{
		URL: url, Base: base, Vocabulary: 1024, Codec: codec(t), Reply: 128, CheckTokens: 1024,
		LearningRate: 0.01,
	})
}

// server starts a fake server and opens a trainer on it.
func server(t *testing.T, o trainertest.Options, change func(*tinker.Options)) (*trainertest.Server, *tinker.Trainer) {
	t.Helper()
	o.Language = digits()
	s := trainertest.New(t, o)
	client, err := tinker.NewClient(tinker.ClientOptions{URL: s.URL(), Patience: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	options := tinker.Options{
		Client: client, Model: tinker.ModelOptions{Base: s.Base(), Rank: 8, Seed: 1}, Vocabulary: s.Vocabulary(),
		Dir: t.TempDir(), Codec: codec(t), Check: tinker.Check{Tokens: 64},
	}
	if change != nil {
		change(&options)
	}
	trainer, err := tinker.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := trainer.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, trainer
}

// lesson returns a row that the policy may have sampled: an answer of digits to 1.
func lesson(advantage float64, answer ...int32) rl.Row {
	const end, user, assistant = 10, 12, 13
	ids := append([]int32{user, 1, end, assistant}, answer...)
	r := rl.Row{
		Task: "lesson", IDs: ids, Mask: make([]uint8, len(ids)), Logprobs: make([]float64, len(ids)),
		Advantage: advantage, Scale: 1,
	}
	for t := 4; t < len(ids); t++ {
		r.Mask[t], r.Logprobs[t] = 1, -math.Log(11)
	}
	return r
}

func learn(t *testing.T, trainer *tinker.Trainer) error {
	t.Helper()
	rows := []rl.Row{lesson(1, 5, 6), lesson(-0.5, 7, 8, 9)}
	if _, err := trainer.ForwardBackward(t.Context(), rows, rl.Objective{}); err != nil {
		return err
	}
	_, err := trainer.Step(t.Context(), rl.Optimizer{LearningRate: 0.05})
	return err
}

// A row with token advantages has the same effect as two rows that each have some of the tokens.
func TestAdvantagesOfTokens(t *testing.T) {
	t.Parallel()
	whole := lesson(9, 5, 6, 7, 8)
	whole.Advantages = []float64{0, 0, 0, 0, 1, 1, -0.5, -0.5}
	first, second := lesson(1, 5, 6, 7, 8), lesson(-0.5, 5, 6, 7, 8)
	clear(first.Mask[6:])
	clear(second.Mask[:6])
	var after [2][][]float64
	for way, rows := range [][]rl.Row{{whole}, {first, second}} {
		_, trainer := server(t, trainertest.Options{}, nil)
		_, err := trainer.ForwardBackward(t.Context(), rows, rl.Objective{})
		if err == nil {
			_, err = trainer.Step(t.Context(), rl.Optimizer{LearningRate: 0.05})
		}
		if err == nil {
			after[way], err = trainer.Forward(t.Context(), []rl.Row{whole})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if d := far(after[0], after[1]); d > trainertest.Tolerance {
		t.Errorf("logprobs differ by %.3g after the step: %v and %v", d, after[0], after[1])
	}
	if lp := after[0][0]; !(lp[4] > whole.Logprobs[4]+0.1 && lp[7] < whole.Logprobs[7]-0.1) {
		t.Errorf("after the step the logprobs are %v, and were %v", lp, whole.Logprobs)
	}
}

// Whatever reply is lost, no update is executed twice: either the server recognises the repeated request, or the
// trainer says that it is lost.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for _, dedups := range []bool{false, true} {
		for _, path := range []string{"forward", "forward_backward", "optim_step", "retrieve_future"} {
			t.Run(fmt.Sprintf("%s, dedups %v", path, dedups), func(t *testing.T) {
				t.Parallel()
				s, trainer := server(t, trainertest.Options{Dedups: dedups}, nil)
				if err := learn(t, trainer); err != nil {
					t.Fatal(err)
				}
				passes, steps := s.Count("forward_backward"), s.Count("optim_step")
				s.Inject(path, trainertest.Fault{Drop: true})
				err := learn(t, trainer)
				unknown := !dedups && (path == "forward_backward" || path == "optim_step")
				if unknown != errors.Is(err, rl.ErrTrainerLost) || !unknown && err != nil {
					t.Errorf("the update ends with %v", err)
				}
				if n := s.Count("forward_backward") - passes; n > 1 {
					t.Errorf("the gradient was accumulated %d times", n)
				}
				if n := s.Count("optim_step") - steps; n > 1 || n == 0 && !unknown {
					t.Errorf("%d steps were taken", n)
				}
			})
		}
	}
}

// The error says if something other than a trainer answers at the address.
func TestOtherServers(t *testing.T) {
	t.Parallel()
	s := trainertest.New(t, trainertest.Options{Language: digits()})
	for answer, want := range map[string]string{
		"{}": "trains no model; to fix: see what answers", "<html>": "to fix: see what answers there: it may be a proxy's page",
	} {
		proxy := trainertest.NewProxy(t, s.URL())
		for range 9 {
			proxy.Inject("get_server_capabilities", trainertest.ProxyFault{Status: 200, Text: answer})
		}
		o := options(t, s, tinker.Samplers{}, codec(t), time.Second)
		o.Client = clientOf(t, tinker.ClientOptions{URL: proxy.URL, Patience: time.Second})
		if _, err := tinker.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// A probe is repeated if the server loses it, or is full of models that nobody uses any more.
func TestLostProbe(t *testing.T) {
	t.Parallel()
	full := trainertest.Fault{Fails: true, Detail: "Maximum number of LoRA adapters (4) reached"}
	for path, faults := range map[string][]trainertest.Fault{
		"optim_step":       {{}, {Drop: true}, {Status: 502}, {}, {Drop: true}, {Drop: true}, {Status: 500}, {Drop: true}, {Drop: true}},
		"forward_backward": {{Drop: true}, {Status: 500, Detail: "no"}},
		"create_model":     {{Drop: true}, full, full},
	} {
		s := trainertest.New(t, trainertest.Options{Language: digits(), MaxModels: 20})
		s.Inject(path, faults...)
		o := options(t, s, tinker.Samplers{}, codec(t), 10*time.Second)
		o.Known = nil
		trainer, err := tinker.Open(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := errors.Join(learn(t, trainer), trainer.Close()); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A trainer that is full waits for the model of a killed client to go. What SkyRL's backends say then is from their source.
func TestFullTrainer(t *testing.T) {
	t.Parallel()
	for _, said := range []string{
		"Maximum number of LoRA adapters (4) reached",
		"FSDPPolicyWorkerBase.register_adapter is not implemented: multi-tenant LoRA adapter management (the adapter store) " +
			"is currently only supported on the Megatron backend. The FSDP backend supports a single LoRA adapter (or full " +
			"fine-tuning) per worker group.",
		"SkyRLTrainBackend already has a 'policy' model; multi-tenant training is only supported for LoRA (rank > 0)",
	} {
		s, trainer := server(t, trainertest.Options{}, nil)
		full := trainertest.Fault{Fails: true, Detail: said}
		s.Inject("create_model", full, full)
		if err := learn(t, trainer); err != nil {
			t.Errorf("%.30s: %v", said, err)
		}
	}
}

// If the reply to a request is lost that creates a model, loads a checkpoint or saves an adapter, the request is made
// again.
func TestLostRepliesOfModels(t *testing.T) {
	t.Parallel()
	for _, dedups := range []bool{false, true} {
		for path, fault := range map[string]trainertest.Fault{
			"create_model": {Drop: true}, "load_weights": {Drop: true},
			"save_weights_for_sampler": {Drop: true, Fails: true, Detail: "killed"},
		} {
			s := trainertest.New(t, trainertest.Options{Language: digits(), Dedups: dedups, MaxModels: 9})
			vllm := trainertest.NewVLLM(t, s, codec(t))
			o := options(t, s, tinker.Samplers{URLs: []string{vllm.URL}, Dir: t.TempDir()}, codec(t), time.Second)
			o.Known.Dedups = dedups
			trainer, err := tinker.Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = trainer.Close() })
			if err := errors.Join(learn(t, trainer), trainer.Save(t.Context(), "one")); err != nil {
				t.Fatal(err)
			}
			s.Inject(path, fault)
			if err = trainer.Load(t.Context(), "one"); err == nil {
				_, err = trainer.Publish(t.Context())
			}
			if err != nil {
				t.Errorf("%s, dedups %v: %v", path, dedups, err)
			}
		}
	}
}

// A gradient that a killed client left on the server is not part of the first update, whether the server was probed or
// not.
func TestLeftGradientIsDiscarded(t *testing.T) {
	t.Parallel()
	mean := &tinker.Probe{Normalisation: tinker.Normalisation{Tokens: true, Sequences: true}}
	var norms []float64
	for _, killed := range []bool{false, true} {
		s, first := server(t, trainertest.Options{}, nil)
		if killed {
			if _, err := first.ForwardBackward(t.Context(), []rl.Row{lesson(3, 1, 2, 3)}, rl.Objective{}); err != nil {
				t.Fatal(err)
			}
			refused := trainertest.Fault{Status: 400, Detail: "no"}
			s.Inject("optim_step", refused, refused) // for the update, and for the step with which Close would clear it
			if _, err := first.Step(t.Context(), rl.Optimizer{LearningRate: 0.05}); err == nil {
				t.Fatal("the step was taken")
			}
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		client, err := tinker.NewClient(tinker.ClientOptions{URL: s.URL()})
		if err != nil {
			t.Fatal(err)
		}
		trainer, err := tinker.Open(t.Context(), tinker.Options{
			Client: client, Model: tinker.ModelOptions{Base: s.Base(), Rank: 8, Seed: 1}, Known: mean,
			Vocabulary: s.Vocabulary(), Dir: t.TempDir(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trainer.ForwardBackward(t.Context(), []rl.Row{lesson(1, 5, 6)}, rl.Objective{}); err != nil {
			t.Fatal(err)
		}
		stats, err := trainer.Step(t.Context(), rl.Optimizer{LearningRate: 0.05})
		if err != nil {
			t.Fatal(err)
		}
		norms = append(norms, stats.GradientNorm)
		if err := trainer.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if norms[0] != norms[1] || norms[0] == 0 {
		t.Errorf("the gradient's norm is %v, and %v after a killed client, want the same", norms[0], norms[1])
	}
}

// A server that sums gets gradients as they come, unless their scale is an estimate. A server that averages gets them
// once their number is known.
func TestWhenGradientsAreSent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		sums, estimated bool
		scale           float64
		before, after   int // the step
	}{
		{true, false, 1, 2, 2},
		{true, false, 0.5, 2, 3}, // the difference is sent
		{true, true, 0.5, 0, 1},
		{false, false, 1, 0, 1},
	} {
		s, trainer := server(t, trainertest.Options{Sums: tt.sums}, nil)
		probed := s.Count("forward_backward")
		for _, row := range []rl.Row{lesson(1, 5, 6), lesson(-0.5, 7, 8, 9)} {
			if _, err := trainer.ForwardBackward(t.Context(), []rl.Row{row}, rl.Objective{Estimated: tt.estimated}); err != nil {
				t.Fatal(err)
			}
		}
		before := s.Count("forward_backward") - probed
		if _, err := trainer.Step(t.Context(), rl.Optimizer{LearningRate: 0.05, Scale: tt.scale}); err != nil {
			t.Fatal(err)
		}
		if after := s.Count("forward_backward") - probed; before != tt.before || after != tt.after {
			t.Errorf("%+v: %d gradients were sent before the step, and %d after it", tt, before, after)
		}
	}
}

// Where the server computes the objective itself, a forward pass is made only for rows without a gradient and for those
// whose ratio it would not bound. Gradient, metrics and log-probabilities are the same.
func TestForwardPassIsLeftOut(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var taught []rl.Row
	for range 6 {
		r := lesson(0, 1, 2, 3, 4, 5)
		r.Advantages = make([]float64, len(r.IDs))
		for k := range r.IDs[4:] {
			r.IDs[4+k] = int32(rng.IntN(10))
			r.Advantages[4+k], r.Logprobs[4+k] = rng.NormFloat64(), -2.4+rng.NormFloat64()/2
		}
		taught = append(taught, r)
	}
	idle, far := lesson(0, 1, 2), lesson(1, 3, 4)
	idle.Logprobs[4], far.Logprobs[5] = -1, -30
	mixed := append(slices.Clone(taught), idle, far)
	for _, c := range []struct {
		name            string
		rows            []rl.Row
		averages, later bool
		forward         int // passes before the step
		scale           float64
	}{
		{"a teacher's rows", taught, false, false, 0, 1},
		{"of which some rollouts are missing in the end", taught, false, false, 0, 0.7},
		{"with rows that need one", mixed, false, false, 1, 1},
		{"an estimated scale", taught, false, true, 1, 0.7},
		{"a server that averages", taught, true, false, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var after [2]outcome
			for way, o := range plain {
				s, trainer := server(t, trainertest.Options{Sums: !c.averages}, nil)
				before := s.Count("forward")
				o.Estimated = c.later
				// With an epsilon this large, the step is nearly proportional to the gradient.
				after[way] = takeStep(t, trainer, c.rows, o, rl.Optimizer{LearningRate: 1, Epsilon: 10, Scale: c.scale})
				want := 1 + [2]int{c.forward, 1}[way] // and one after the step
				if n := s.Count("forward") - before; n != want {
					t.Errorf("%+v: %d forward passes, want %d", o, n, want)
				}
			}
			after[0].compare(t, after[1], 1e-6)
		})
	}
}

func TestRefusalsBeforeExecution(t *testing.T) {
	t.Parallel()
	s, trainer := server(t, trainertest.Options{}, nil)
	for _, f := range []trainertest.Fault{{Status: 429, Detail: "slow down"}} {
		s.Inject("forward_backward", f)
		s.Inject("optim_step", f)
		s.Inject("retrieve_future", f, trainertest.Fault{Status: 408},
			trainertest.Fault{Status: 500, Detail: "Internal Server Error"})
		if err := learn(t, trainer); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// A server may hold a poll for longer than the patience while it answers health checks. Otherwise it counts as hung.
func TestPollsThatAreHeld(t *testing.T) {
	t.Parallel()
	for _, hangs := range []bool{false, true} {
		t.Run(strconv.FormatBool(hangs), func(t *testing.T) {
			t.Parallel()
			s, trainer := server(t, trainertest.Options{}, nil)
			held := trainertest.Fault{Delay: time.Minute}
			s.Inject("retrieve_future", held)
			if hangs {
				s.Inject("healthz", held)
			} else {
				s.Inject("retrieve_future", held, held)
			}
			if err := learn(t, trainer); (err != nil) != hangs {
				t.Error(err)
			}
		})
	}
}

func TestErrorsAreToldApart(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{
		400: tinker.ErrOperation, 404: tinker.ErrUnknown, 410: tinker.ErrExpired, 422: tinker.ErrOperation,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			s, trainer := server(t, trainertest.Options{}, nil)
			if err := learn(t, trainer); err != nil {
				t.Fatal(err)
			}
			s.Inject("retrieve_future", trainertest.Fault{Status: status, Detail: "it says why"})
			err := learn(t, trainer) // the forward pass fails
			if !errors.Is(err, want) || !strings.Contains(err.Error(), "it says why") {
				t.Errorf("%v", err)
			}
			if err := learn(t, trainer); err != nil {
				t.Errorf("a forward pass that failed has left something: %v", err)
			}
		})
	}
}

// If an operation of an update fails, the server may have executed a part of it.
func TestFailedUpdates(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"forward_backward", "optim_step"} {
		s, trainer := server(t, trainertest.Options{}, nil)
		s.Inject(path, trainertest.Fault{Fails: true, Detail: "out of memory"})
		err := learn(t, trainer)
		if !errors.Is(err, rl.ErrTrainerLost) || !errors.Is(err, tinker.ErrOperation) ||
			!strings.Contains(err.Error(), "out of memory") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A server that claims to have computed a gradient, but has not, is detected by its next answer.
func TestIdleServer(t *testing.T) {
	t.Parallel()
	s, trainer := server(t, trainertest.Options{}, nil)
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	s.Inject("forward_backward", trainertest.Fault{Idle: true})
	if err := learn(t, trainer); !errors.Is(err, rl.ErrTrainerLost) || !strings.Contains(err.Error(), "gradient is 0") {
		t.Errorf("the update ends with %v", err)
	}
}

// A sequence number that is already used means that another process trains the model, whose state is then unknown.
func TestTwoDriversOfOneModel(t *testing.T) {
	t.Parallel()
	s, trainer := server(t, trainertest.Options{Dedups: true}, nil)
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	s.Inject("forward_backward", trainertest.Fault{Status: 409, Detail: "Training request sequence number was reused"})
	err := learn(t, trainer)
	if !errors.Is(err, rl.ErrTrainerLost) || !errors.Is(err, tinker.ErrConflict) ||
		!strings.Contains(err.Error(), "another process trains this model") {
		t.Errorf("%v", err)
	}
}

// A server that claims to have published new weights, but has not, is detected by what it samples.
func TestSkippedPublicationIsFound(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]trainertest.Fault{"old weights": {Stale: true}, "nothing done": {Idle: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, trainer := server(t, trainertest.Options{}, nil)
			if _, err := trainer.Publish(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := learn(t, trainer); err != nil {
				t.Fatal(err)
			}
			s.Inject("save_weights_for_sampler", fault)
			if _, err := trainer.Publish(t.Context()); !errors.Is(err, rl.ErrApart) {
				t.Errorf("the publication ends with %v", err)
			}
		})
	}
}

// Turns between a step and its publication wait for that, and then say which version sampled them.
func TestTurnsWaitForThePublication(t *testing.T) {
	t.Parallel()
	_, trainer := server(t, trainertest.Options{}, nil)
	first, err := trainer.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		reply agent.Reply
		err   error
	}
	answers := make(chan answer, 1)
	waits := make(chan bool, 4)
	ask := func(ctx context.Context) answer {
		reply, err := first.Model.Complete(ctx, agent.Request{
			Messages: []agent.Message{{Role: agent.RoleUser, Content: "1"}}, Tokens: true,
			Waiting: func() func() { waits <- true; return func() { waits <- false } },
		})
		return answer{reply, err}
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if a := ask(impatient); !errors.Is(a.err, context.Canceled) {
		t.Errorf("a turn between step and publication: %+v", a)
	}
	<-waits
	<-waits
	go func() { answers <- ask(t.Context()) }()
	<-waits // the time of the publication does not count for the turn
	if _, err := trainer.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-waits
	a := <-answers
	if a.err != nil || *a.reply.Tokens.PolicyVersion != 1 {
		t.Errorf("%+v", a)
	}
}

func TestRestartedServer(t *testing.T) {
	t.Parallel()
	s, trainer := server(t, trainertest.Options{Dedups: true}, nil)
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	if err := trainer.Save(t.Context(), "before"); err != nil {
		t.Fatal(err)
	}
	rows := []rl.Row{lesson(1, 5, 6)}
	want, err := trainer.Forward(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := learn(t, trainer); !errors.Is(err, rl.ErrTrainerLost) {
		t.Errorf("after a restart: %v", err)
	}
	if err := trainer.Load(t.Context(), "before"); err != nil {
		t.Fatal(err)
	}
	got, err := trainer.Forward(t.Context(), rows)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("restored %v, %v; want %v", got, err, want)
	}
}

// A server that repeats its answer to an earlier checkpoint may have lost its database.
func TestCheckpointWithAnOldAnswer(t *testing.T) {
	t.Parallel()
	s := trainertest.New(t, trainertest.Options{Language: digits()})
	proxy := trainertest.NewProxy(t, s.URL())
	o := options(t, s, tinker.Samplers{}, codec(t), time.Second)
	o.Client = clientOf(t, tinker.ClientOptions{URL: proxy.URL, Patience: time.Second})
	trainer, err := tinker.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = trainer.Close() })
	if err := trainer.Save(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	proxy.Inject("save_weights", trainertest.ProxyFault{Stale: true})
	if err := trainer.Save(t.Context(), "second"); !errors.Is(err, rl.ErrTrainerLost) {
		t.Errorf("a checkpoint that was skipped ends with %v", err)
	}
}

func TestConversationsContinueWithTheIDsThatWereSampled(t *testing.T) {
	t.Parallel()
	_, trainer := server(t, trainertest.Options{}, nil)
	p, err := trainer.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	messages := []agent.Message{{Role: agent.RoleUser, Content: "1"}}
	var turns []rl.Turn
	var last *agent.Sample
	for turn := range 3 {
		reply, err := p.Model.Complete(t.Context(), agent.Request{
			Messages: messages, MaxTokens: 2 + turn, Tokens: true, Sampling: agent.OnPolicy(new(1.0)),
			Sampled: last, Fresh: max(0, len(messages)-1),
		})
		if err != nil {
			t.Fatal(err)
		}
		last = reply.Tokens
		turns = append(turns, *last)
		messages = append(messages, reply.Message, agent.Message{Role: agent.RoleUser, Content: strconv.Itoa(turn)})
	}
	m := rl.Measure(&rl.Rollout{Task: "t", Turns: turns, NotGraded: true, StopReason: agent.Submitted}, 0)
	if m.Shape.Rows != 1 {
		t.Errorf("three turns make %d rows: %+v", m.Shape.Rows, m.Shape.Splits)
	}
}

// A reply may be as long as the context allows. A conversation that leaves no room is an overflow, and is never sent.
func TestRepliesFitTheContext(t *testing.T) {
	t.Parallel()
	s, trainer := server(t, trainertest.Options{}, func(o *tinker.Options) { o.MaxLength = 10 })
	p, err := trainer.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := trainer.MaxContext(); n != 10 {
		t.Errorf("the longest context is %d", n)
	}
	ask := func(content string) (agent.Reply, error) {
		return p.Model.Complete(t.Context(), agent.Request{
			Messages: []agent.Message{{Role: agent.RoleUser, Content: content}}, MaxTokens: 8, Tokens: true,
		})
	}
	for range 8 {
		reply, err := ask("12345")
		if err != nil {
			t.Fatal(err)
		}
		if n := len(reply.Tokens.CompletionIDs); n > 2 || n < 2 && reply.FinishReason != "stop" {
			t.Errorf("%d tokens, and the reason %s", n, reply.FinishReason)
		}
	}
	sampled := s.Count("sample")
	if _, err := ask("1234567890"); !errors.Is(err, agent.ErrContextOverflow) {
		t.Errorf("a conversation of 13 tokens: %v", err)
	}
	if n := s.Count("sample"); n != sampled {
		t.Error("a conversation that does not fit was sent")
	}
}

func TestClientRefuses(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]tinker.ClientOptions{
		"a key with a line break":   {URL: "http://a", Key: "secret\n"},
		"no address":                {},
		"a path to a file":          {URL: "/tmp/socket"},
		"a password in the address": {URL: "http://me:secret@a"},
	} {
		_, err := tinker.NewClient(o)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Neither a request nor its key ever goes to a host that was not named.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var seen []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.Header.Get("X-API-Key"))
	}))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer first.Close()
	c, err := tinker.NewClient(tinker.ClientOptions{URL: first.URL, Key: "secret", Patience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Capabilities(t.Context()); err == nil || !strings.Contains(err.Error(), "redirects to") {
		t.Errorf("%v", err)
	}
	if len(seen) > 0 {
		t.Errorf("the other host has seen %q", seen)
	}
}
