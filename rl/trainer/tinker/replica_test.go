package tinker_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/env/testkit"
	"deepswe/rl"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/trainer/trainertest"
)

// three starts a trainer with three samplers, the last of them in the given state.
func three(t *testing.T, last trainertest.State, patience time.Duration) (*trainertest.Server, *tinker.Trainer,
	[]*trainertest.VLLM) {
	t.Helper()
	return threeWith(t, tinker.Samplers{}, last, patience)
}

// threeWith is the same with other settings of the samplers.
func threeWith(t *testing.T, on tinker.Samplers, last trainertest.State, patience time.Duration) (*trainertest.Server,
	*tinker.Trainer, []*trainertest.VLLM) {
	t.Helper()
	s := trainertest.New(t, trainertest.Options{Language: digits()})
	var vllms []*trainertest.VLLM
	var urls []string
	for range 3 {
		v := trainertest.NewVLLM(t, s, codec(t))
		vllms, urls = append(vllms, v), append(urls, v.URL)
	}
	vllms[2].Set(last)
	on.URLs, on.Dir = urls, filepath.Join(t.TempDir(), "adapters")
	trainer, err := openPatient(t, s, on, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = trainer.Close() })
	return s, trainer, vllms
}

// ready waits until that many samplers get turns.
func ready(t *testing.T, trainer *tinker.Trainer, n int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d samplers get turns", n), func() bool {
		return trainer.Gauges()["samplers/ready"] == float64(n)
	})
}

func served(v *trainertest.VLLM, version int) int {
	n := 0
	for name, replies := range v.Served() {
		if strings.HasSuffix(name, fmt.Sprintf("@%d", version)) {
			n += replies
		}
	}
	return n
}

// asked samples one turn for each of twelve rollouts at once.
func asked(t *testing.T, m agent.Model) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			if _, err := ask(t, m, fmt.Sprint("rollout ", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// If one of three samplers stops answering, in whatever way and at whatever moment, it gets no turns, and the others go
// on sampling and publishing. Once it is back, it loads the newest version before it gets a turn.
func TestOneOfThreeSamplers(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]trainertest.State{
		"down": trainertest.Down, "hung": trainertest.Hung, "busy": trainertest.Busy,
	} {
		for _, moment := range []string{"before the start", "at a turn", "at a publication"} {
			t.Run(name+" "+moment, func(t *testing.T) {
				t.Parallel()
				first := trainertest.Up
				if moment == "before the start" {
					first = state
				}
				_, trainer, vllms := three(t, first, 20*time.Second)
				p := publish(t, trainer)
				asked(t, p.Model)
				vllms[2].Set(state)
				if moment == "at a turn" {
					asked(t, p.Model)
					ready(t, trainer, 2)
				}
				if err := learn(t, trainer); err != nil {
					t.Fatal(err)
				}
				p = publish(t, trainer)
				if g := trainer.Gauges(); g["samplers/ready"] != 2 || g["samplers/aside"] != 1 || p.Version != 1 {
					t.Errorf("version %d is published with %v", p.Version, g)
				}
				asked(t, p.Model)
				if n := served(vllms[2], 1); n > 0 {
					t.Errorf("it gave %d replies", n)
				}
				vllms[2].Restart()
				vllms[2].Set(trainertest.Up)
				ready(t, trainer, 3)
				if names := vllms[2].Loaded(); len(names) != 1 || !strings.HasSuffix(names[0], "@1") {
					t.Errorf("it is back with %q", names)
				}
				asked(t, p.Model)
				for i := range 24 {
					if _, err := ask(t, p.Model, fmt.Sprint("another ", i)); err != nil {
						t.Error(err)
					}
				}
				if served(vllms[2], 1) == 0 {
					t.Error("it is back and gave no reply")
				}
			})
		}
	}
}

// If a sampler falls silent, neither its turns nor a publication wait until it is put aside. Once it answers again, it
// gets turns again.
func TestSilentSampler(t *testing.T) {
	t.Parallel()
	_, trainer, vllms := three(t, trainertest.Up, 5*time.Minute)
	aside := func() bool { return trainer.Gauges()["samplers/ready"] < 3 }
	p := publish(t, trainer)
	vllms[2].Set(trainertest.Hung)
	if asked(t, p.Model); aside() {
		t.Error("turns have waited until it was put aside")
	}
	vllms[2].Set(trainertest.Up)
	before, rollouts := served(vllms[2], 0), 0
	// New rollouts, because the earlier ones have moved to other servers.
	testkit.Eventually(t, "the sampler has turns again", func() bool {
		rollouts++
		if _, err := ask(t, p.Model, fmt.Sprint("another ", rollouts)); err != nil {
			t.Error(err)
		}
		return served(vllms[2], 0) > before
	})
	vllms[2].Set(trainertest.Hung)
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	asked(t, publish(t, trainer).Model)
	vllms[2].Set(trainertest.Up)
	ready(t, trainer, 3)
}

// A sampler that lists its models but gives no reply is put aside because no turn on it ends. It comes back once it
// samples again.
func TestStuckSampler(t *testing.T) {
	t.Parallel()
	_, trainer, vllms := three(t, trainertest.Up, 2*time.Second)
	p := publish(t, trainer)
	asked(t, p.Model)
	vllms[2].Set(trainertest.Stuck)
	asked(t, p.Model)
	ready(t, trainer, 2)
	asked(t, p.Model)
	vllms[2].Set(trainertest.Up)
	ready(t, trainer, 3)
}

// A full sampler gives no reply for longer than a stuck one may, but turns wait for it as long as its count of tokens
// grows.
func TestFullSampler(t *testing.T) {
	t.Parallel()
	_, trainer, vllms := three(t, trainertest.Up, 2*time.Second)
	p := publish(t, trainer)
	asked(t, p.Model)
	sampled := func() (n int) {
		for _, v := range vllms {
			n += len(v.Prompts())
		}
		return n
	}
	before := sampled()
	for _, v := range vllms {
		v.Set(trainertest.Full)
	}
	asked(t, p.Model)
	if n := sampled() - before; n != 12 {
		t.Errorf("12 turns were asked for %d times", n)
	}
}

// A server gets no more turns than it has room for while another has room, even from rollouts that it has cached.
func TestRoomOfSamplers(t *testing.T) {
	t.Parallel()
	const room = 4
	_, trainer, vllms := threeWith(t, tinker.Samplers{Turns: room}, trainertest.Up, 20*time.Second)
	p := publish(t, trainer)
	set := func(to trainertest.State, vllms ...*trainertest.VLLM) {
		for _, v := range vllms {
			v.Set(to)
		}
	}
	set(trainertest.Down, vllms[1:]...)
	ready(t, trainer, 1)
	asked(t, p.Model)
	set(trainertest.Slow, vllms...)
	ready(t, trainer, 3)
	before := make([]int, 3)
	for i, v := range vllms {
		before[i] = len(v.Prompts())
	}
	asked(t, p.Model)
	for i, v := range vllms {
		if n := len(v.Prompts()) - before[i]; n != room {
			t.Errorf("server %d had %d of 12 turns, and room for %d", i, n, room)
		}
	}
}

// The samplers are those that a file names at the moment. A new one loads the newest version before it gets a turn.
func TestSamplersOfAFile(t *testing.T) {
	t.Parallel()
	s := trainertest.New(t, trainertest.Options{Language: digits()})
	old, new := trainertest.NewVLLM(t, s, codec(t)), trainertest.NewVLLM(t, s, codec(t))
	file := filepath.Join(t.TempDir(), "samplers")
	testkit.WriteFile(t, file, "# the first\n"+old.URL+"\n")
	on := tinker.Samplers{File: file, Dir: filepath.Join(t.TempDir(), "adapters")}
	trainer, err := openPatient(t, s, on, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = trainer.Close() })
	p := publish(t, trainer)
	asked(t, p.Model)
	testkit.WriteFile(t, file, old.URL+"\n"+new.URL+"\n")
	ready(t, trainer, 2)
	testkit.WriteFile(t, file, "not an address\n")
	testkit.WriteFile(t, file, new.URL+"\n")
	ready(t, trainer, 1)
	for len(old.Loaded()) > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	p = publish(t, trainer)
	asked(t, p.Model)
	if served(old, 1) > 0 || served(new, 1) < 12 {
		t.Errorf("the old one gave %d replies, the new one %d", served(old, 1), served(new, 1))
	}
}

// A held version still answers as itself after others were published, even on restarted servers. Once it is released
// and another version is published, the newest answers instead.
func TestHeldVersion(t *testing.T) {
	t.Parallel()
	_, trainer, vllms, _ := samplers(t, 2)
	version := func(m agent.Model) int64 {
		t.Helper()
		reply, err := ask(t, m, "a rollout")
		if err != nil {
			t.Fatal(err)
		}
		return *reply.Tokens.PolicyVersion
	}
	next := func() rl.Policy {
		t.Helper()
		if err := learn(t, trainer); err != nil {
			t.Fatal(err)
		}
		return publish(t, trainer)
	}
	first := publish(t, trainer)
	release := first.Model.(rl.Held).Hold()
	second, third := next(), next()
	for _, v := range vllms {
		v.Restart()
	}
	if v := version(first.Model); v != first.Version {
		t.Errorf("the held version answers as %d", v)
	}
	if v := version(second.Model); v != third.Version {
		t.Errorf("the version that is not held answers as %d", v)
	}
	release()
	last := next()
	if v := version(first.Model); v != last.Version {
		t.Errorf("the released version answers as %d", v)
	}
	testkit.Eventually(t, "it is unloaded", func() bool {
		return len(vllms[0].Loaded()) == 1 && len(vllms[1].Loaded()) == 1
	})
}

// If all samplers are busy for four seconds at a publication, only time is lost.
func TestBusySamplers(t *testing.T) {
	t.Parallel()
	_, trainer, vllms := three(t, trainertest.Up, 20*time.Second)
	set := func(to trainertest.State) {
		for _, v := range vllms {
			v.Set(to)
		}
	}
	set(trainertest.Busy)
	time.AfterFunc(4*time.Second, func() { set(trainertest.Up) })
	asked(t, publish(t, trainer).Model)
}

// If no sampler answers, a turn waits, which does not count towards its time limit. After the patience, the run ends.
func TestNoSampler(t *testing.T) {
	t.Parallel()
	_, trainer, vllms, _ := samplers(t, 2)
	p := publish(t, trainer)
	for _, v := range vllms {
		v.Set(trainertest.Down)
	}
	waited := false
	request := agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: "1"}}, Tokens: true, Sampling: agent.OnPolicy(new(1.0)),
		Waiting: func() func() {
			waited = true
			return func() {}
		},
	}
	_, err := p.Model.Complete(t.Context(), request)
	if !errors.Is(err, rl.ErrUnsampled) || !errors.Is(err, agent.ErrModelUnavailable) || !waited {
		t.Errorf("%v, waited: %v", err, waited)
	}
	if err := learn(t, trainer); err != nil {
		t.Fatal(err)
	}
	if _, err := trainer.Publish(t.Context()); !errors.Is(err, rl.ErrUnsampled) {
		t.Errorf("a publication to none: %v", err)
	}
}

// A publication ends with its context, even if the trainer or the samplers accept it and never answer.
func TestPublicationEnds(t *testing.T) {
	t.Parallel()
	for _, slow := range []string{"save_weights_for_sampler", "archive", "load"} {
		t.Run(slow, func(t *testing.T) {
			t.Parallel()
			s, trainer, vllms, _ := samplers(t, 2)
			publish(t, trainer)
			if err := learn(t, trainer); err != nil {
				t.Fatal(err)
			}
			if slow == "load" {
				for _, v := range vllms {
					v.Set(trainertest.Hung)
				}
			} else {
				s.Inject(slow, trainertest.Fault{Delay: time.Minute})
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if _, err := trainer.Publish(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A slow sampler gets fewer turns, and rollouts move to one that answers much earlier.
func TestSlowSampler(t *testing.T) {
	t.Parallel()
	_, trainer, vllms := three(t, trainertest.Slow, 20*time.Second)
	p := publish(t, trainer)
	for range 5 {
		asked(t, p.Model)
	}
	var counts []int
	for _, v := range vllms {
		counts = append(counts, served(v, 0))
	}
	if counts[2] != slices.Min(counts) || counts[2] > 20 {
		t.Errorf("the servers gave %v replies, and the last is slow", counts)
	}
}

// A request for an archive that fails for now is repeated.
func TestArchiveIsRepeated(t *testing.T) {
	t.Parallel()
	s, trainer, _, _ := samplers(t, 1)
	s.Inject("archive", trainertest.Fault{Status: 429}, trainertest.Fault{Status: 500}, trainertest.Fault{Drop: true})
	publish(t, trainer)
}

// A garbled result is requested again if that changes nothing on the server.
func TestGarbledForward(t *testing.T) {
	t.Parallel()
	s, trainer, _, _ := samplers(t, 1)
	s.Inject("forward", trainertest.Fault{Status: 200, Detail: "garbage"})
	s.Inject("retrieve_future", trainertest.Fault{}, trainertest.Fault{Status: 200, Detail: "garbage"})
	publish(t, trainer)
	if err := learn(t, trainer); err != nil {
		t.Error(err)
	}
}
