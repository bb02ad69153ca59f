package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/rl"
)

// Samplers are vLLM servers that sample instead of the trainer's server. They load the adapter of each publication
// under a name of its own. Their base model and tokenizer must be the trainer's.
type Samplers struct {
	// URLs are their OpenAI endpoints. If empty, the trainer's server samples.
	URLs []string
	// Key is sent to all of them.
	Key string
	// Dir is the directory in which this run unpacks adapters. The servers must see it at the same absolute path.
	Dir string
}

// adapters samples from vLLM servers. All turns of a rollout go to one server, which has cached its conversation,
// unless that server fails.
type adapters struct {
	client  *Client
	codec   Codec
	prefix  string // of the names of this trainer's adapters
	dir     string
	servers []*vllm

	mu      sync.Mutex
	current *adapter
	old     []*adapter
	homes   map[string]int // the server of a rollout
	next    int
}

// adapter is one version of the policy on all servers.
type adapter struct {
	of        *adapters
	name, dir string
	version   int64
	models    []*llm.Client // by server
	calls     int           // under way; guarded by of.mu
	unloaded  bool
}

func newAdapters(c *Client, codec Codec, o Samplers) (*adapters, error) {
	a := &adapters{client: c, codec: codec, prefix: "deepswe-" + nonce(), dir: o.Dir, homes: map[string]int{}}
	for _, url := range o.URLs {
		s, err := newVLLM(url, o.Key)
		if err != nil {
			return nil, err
		}
		a.servers = append(a.servers, s)
	}
	return a, nil
}

// open creates the directory for adapters, and unloads the adapters that a killed run has left on the servers.
func (a *adapters) open(ctx context.Context) error {
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return fmt.Errorf("adapters: %w", err)
	}
	for _, s := range a.servers {
		names, err := s.loaded(ctx, a.client.newTries(), a.dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := s.unload(ctx, name); err != nil {
				return err
			}
		}
	}
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return fmt.Errorf("adapters: %w", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(a.dir, e.Name())); err != nil {
			return fmt.Errorf("adapters: %w", err)
		}
	}
	return nil
}

// pause does nothing, because loaded adapters do not change.
func (a *adapters) pause(context.Context) error { return nil }
func (a *adapters) resume()                     {}

// publish downloads the model's adapter and loads it on all servers. Older adapters without turns under way are
// unloaded.
func (a *adapters) publish(ctx context.Context, m *Model, number, version int64) (agent.Model, error) {
	// llm reads the version from what follows the @.
	v := &adapter{of: a, version: version, name: fmt.Sprintf("%s-%d@%d", a.prefix, number, version)}
	v.dir = filepath.Join(a.dir, fmt.Sprintf("%s-%d", a.prefix, number))
	address, err := m.export(ctx, fmt.Sprintf("%s-%d", a.prefix, number))
	if err != nil {
		return nil, unpublished(err)
	}
	if err := a.download(ctx, address, v.dir); err != nil {
		return nil, err
	}
	if err := a.client.Remove(ctx, address); err != nil {
		a.client.log.Debug("the trainer keeps what was saved for sampling", "address", address, "error", err)
	}
	for _, s := range a.servers {
		if err := s.load(ctx, a.client.newTries(), v.name, v.dir); err != nil {
			return nil, err
		}
		o := llm.Options{
			BaseURL: s.url, APIKey: s.key, Model: v.name, Continue: llm.Extend, Codec: a.codec, Log: a.client.log,
			Patience: a.client.patience,
		}
		if len(a.servers) > 1 {
			o.Patience, o.MaxRetries = 0, 2 // another server can go on
		}
		model, err := llm.New(o)
		if err != nil {
			return nil, err
		}
		v.models = append(v.models, model)
	}
	a.mu.Lock()
	if a.current != nil {
		a.old = append(a.old, a.current)
	}
	a.current = v
	a.mu.Unlock()
	a.unloadIdle(ctx, false)
	return v, nil
}

// downloads is how often to try to download an archive completely.
const downloads = 3

func (a *adapters) download(ctx context.Context, address, dir string) error {
	t := a.client.newTries()
	for n := 1; ; n++ {
		err := a.client.Adapter(ctx, address, dir)
		again := errors.Is(err, ErrUnavailable) || errors.Is(err, ErrArchive) && n < downloads
		if !again || ctx.Err() != nil || !t.again(ctx, 0) {
			return err
		}
		a.client.log.Warn("the adapter is downloaded again", "error", err)
	}
}

// unloadIdle unloads the older versions without turns under way, or all versions.
func (a *adapters) unloadIdle(ctx context.Context, all bool) {
	a.mu.Lock()
	if all && a.current != nil {
		a.old, a.current = append(a.old, a.current), nil
	}
	var idle []*adapter
	a.old = slices.DeleteFunc(a.old, func(v *adapter) bool {
		if !all && v.calls > 0 {
			return false
		}
		v.unloaded = true
		idle = append(idle, v)
		return true
	})
	a.mu.Unlock()
	for _, v := range idle {
		for _, s := range a.servers {
			if err := s.unload(ctx, v.name); err != nil {
				a.client.log.Debug("adapter not unloaded", "sampler", s.url, "adapter", v.name, "error", err)
			}
		}
		if err := os.RemoveAll(v.dir); err != nil {
			a.client.log.Warn("adapter not removed", "error", err)
		}
	}
}

func (a *adapters) close() {
	ctx, cancel := context.WithTimeout(context.Background(), unloadTimeout)
	defer cancel()
	a.unloadIdle(ctx, true)
}

// home returns the server of a rollout. New rollouts are assigned to the servers in turn.
func (a *adapters) home(rollout string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, ok := a.homes[rollout]; ok {
		return at
	}
	at := a.next % len(a.servers)
	a.next++
	if rollout != "" {
		if len(a.homes) >= maxHomes {
			clear(a.homes)
		}
		a.homes[rollout] = at
	}
	return at
}

// maxHomes is the most rollouts to remember a server for.
const maxHomes = 1 << 16

// Complete samples a turn. If this version has been unloaded, the newest samples it, as the reply's version shows.
func (v *adapter) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	a := v.of
	a.mu.Lock()
	if v.unloaded && a.current != nil {
		v = a.current
	}
	v.calls++
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		v.calls--
	}()
	home, patience := a.home(r.Rollout), a.client.newTries()
	for n := 1; ; n++ {
		at := (home + n - 1) % len(v.models)
		reply, err := v.ask(ctx, at, r)
		if err == nil || ctx.Err() != nil || len(v.models) == 1 || !errors.Is(err, agent.ErrModelUnavailable) {
			return reply, err
		}
		a.client.log.Warn("a sampler does not answer", "sampler", a.servers[at].url, "error", err)
		if n%len(v.models) == 0 && !patience.wait(ctx, r) { // none of them does
			return reply, err
		}
	}
}

// wait pauses a turn while no sampler answers. The pause does not count towards the rollout's time limit.
func (t *tries) wait(ctx context.Context, r agent.Request) bool {
	if r.Waiting != nil {
		defer r.Waiting()()
	}
	return t.again(ctx, 0)
}

// ask samples from one server. One that was restarted loads the adapter again. The reply is read from its ids, because
// prompts are written in the trainer's tokenizer, and the server's may differ.
func (v *adapter) ask(ctx context.Context, at int, r agent.Request) (agent.Reply, error) {
	reply, err := v.models[at].Complete(ctx, r)
	if failed, ok := errors.AsType[*llm.Error](err); ok && failed.Status == http.StatusNotFound {
		if err := v.of.servers[at].load(ctx, v.of.client.newTries(), v.name, v.dir); err != nil {
			return agent.Reply{}, err
		}
		reply, err = v.models[at].Complete(ctx, r)
	}
	if err == nil && reply.Tokens != nil {
		reply.Message = v.of.codec.Reply(reply.Tokens.CompletionIDs, r)
	}
	return reply, err
}

// check samples sequences from every server. The Group of a row is the index of its server.
func (a *adapters) check(ctx context.Context, seed int64, tokens int) ([]rl.Row, error) {
	n := max(len(a.servers), min(checkSequences, tokens))
	rows, errs := make([]rl.Row, n), make([]error, n)
	var asked sync.WaitGroup
	for i := range n {
		asked.Go(func() {
			at := i % len(a.servers)
			sampling := agent.OnPolicy(new(1.0))
			sampling.Seed = new((seed + int64(i)) & math.MaxInt32)
			reply, err := a.current.ask(ctx, at, agent.Request{
				Messages: []agent.Message{{Role: agent.RoleUser, Content: "check"}}, Sampling: sampling,
				MaxTokens: (tokens + n - 1) / n, Tokens: true,
			})
			if err == nil && reply.Tokens == nil {
				err = errors.New("its replies have no token ids with logprobs")
			}
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", a.servers[at].url, err)
				return
			}
			rows[i] = checkRow(i, reply.Tokens)
			rows[i].Group = a.servers[at].url
		})
	}
	asked.Wait()
	slices.SortStableFunc(rows, func(a, b rl.Row) int { return cmp.Compare(a.Group, b.Group) })
	return rows, errors.Join(errs...)
}

// checkRow returns a sample as a row.
func checkRow(i int, s *agent.Sample) rl.Row {
	prompt := len(s.PromptIDs)
	return rl.Row{
		Task: "check", Attempt: i, IDs: slices.Concat(s.PromptIDs, s.CompletionIDs),
		Mask:     slices.Concat(make([]uint8, prompt), slices.Repeat([]uint8{1}, len(s.CompletionIDs))),
		Logprobs: slices.Concat(make([]float64, prompt), s.Logprobs),
	}
}

var _ outlet = (*adapters)(nil)
