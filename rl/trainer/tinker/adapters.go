package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/env/disk"
	"deepswe/rl"
)

// Samplers are vLLM servers that sample instead of the trainer's server. They load the adapter of each publication
// under a name of its own. Their base model and tokenizer must be the trainer's.
type Samplers struct {
	// URLs are their OpenAI endpoints. File names them instead, one per line, and is read again while the trainer is
	// open. Without either, the trainer's server samples.
	URLs []string
	File string
	// Key is sent to all of them.
	Key string
	// Dir is the directory in which this run unpacks adapters. The servers must see it at the same absolute path.
	Dir string
	// Turns is how many turns a server has room for: one that has as many gets another only if all have. 0 means no
	// limit.
	Turns int
}

func (s Samplers) named() bool { return len(s.URLs) > 0 || s.File != "" }

// adapters samples from vLLM servers. All turns of a rollout go to one server, which has cached its conversation, as
// long as that server answers and is not much busier than another.
type adapters struct {
	client *Client
	codec  Codec
	prefix string // of the names of this trainer's adapters
	dir    string
	limits limits
	// file names the servers that sample; empty if they do not change. key is the API key of new servers.
	file, key string
	// room is how many turns a server has room for.
	room int
	// probing limits the time in which a server must list its models.
	probing time.Duration
	// life ends with close, and with it the goroutines that tend servers.
	life    context.Context
	end     context.CancelFunc
	tending sync.WaitGroup

	mu       sync.Mutex
	replicas []*replica
	// versions are the adapters of which turns may be under way, the oldest first. current is the one that is sampled.
	versions []*adapter
	current  *adapter
	// leaving are versions that are sampled no longer, until they are unloaded.
	leaving  []*adapter
	homes    map[string]*replica // by rollout
	next     int
	changed  chan struct{} // closed when a server comes or goes
	reminded time.Time     // time of the last warning that none samples
	// slowest is the most seconds that a token of a reply has taken.
	slowest float64
}

// adapter is one version of the policy on all servers.
type adapter struct {
	of        *adapters
	name, dir string
	models    map[*replica]*llm.Client
	calls     int // under way; guarded by of.mu, as is what follows
	holds     int // how many need it although it may not be the newest any more
	unloaded  bool
}

func newAdapters(c *Client, codec Codec, l limits, o Samplers) (*adapters, error) {
	a := &adapters{
		client: c, codec: codec, prefix: "deepswe-" + nonce(), dir: o.Dir, limits: l, file: o.File, key: o.Key,
		room: cmp.Or(o.Turns, math.MaxInt), homes: map[string]*replica{},
		changed: make(chan struct{}), probing: min(max(c.patience/10, time.Second), longestProbe),
	}
	urls, err := o.URLs, error(nil)
	if o.File != "" {
		urls, err = disk.ReadList(o.File)
	}
	if err == nil {
		a.replicas, err = a.replicasOf(urls)
	}
	if err != nil {
		return nil, fmt.Errorf("samplers: %w", err)
	}
	return a, nil
}

// open empties the directory for adapters, and waits for the first server. The others may come later.
func (a *adapters) open(ctx context.Context) error {
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return fmt.Errorf("adapters: %w", err)
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
	a.life, a.end = context.WithCancel(context.WithoutCancel(ctx))
	each(a.replicas, func(s *replica) {
		a.begin(s)
		if err := a.join(ctx, s); err != nil {
			a.client.log.Warn("a sampler is put aside", "sampler", s.url, "error", err)
			a.markDown(s, err)
		}
	})
	for _, s := range a.replicas {
		a.tending.Go(func() { a.tend(a.life, s) })
	}
	if a.file != "" {
		a.tending.Go(a.follow)
	}
	err = a.await(ctx, func() bool { return len(a.answering()) > 0 })
	if err != nil {
		a.close()
	}
	return err
}

// publish downloads the model's adapter and loads it on all servers at once. It succeeds once one of them has it.
// Older adapters that are not held and have no turns under way are unloaded.
func (a *adapters) publish(ctx context.Context, m *Model, number, version int64) (agent.Model, error) {
	name := fmt.Sprintf("%s-%d", a.prefix, number)
	v := &adapter{
		of: a, name: fmt.Sprintf("%s@%d", name, version), // llm reads the version from what follows the @
		dir: filepath.Join(a.dir, name), models: map[*replica]*llm.Client{},
	}
	if err := m.takeAdapter(ctx, number, v.dir); err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.versions = append(a.versions, v)
	ready := a.answering()
	a.mu.Unlock()
	a.loadAll(ctx, ready, v)
	if err := a.await(ctx, func() bool { return len(a.having(v)) > 0 }); err != nil {
		return nil, err
	}
	if err := a.checkExtends(ctx, v); err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.current = v
	for _, s := range a.replicas {
		s.pace = 0
	}
	idle := a.takeIdle()
	a.mu.Unlock()
	a.tending.Go(func() { a.unload(a.life, idle) })
	return v, nil
}

// loadAll loads a version into servers at once, and waits for those that are not silent. Silent ones go on loading,
// and get turns of the version once they have it. After the first server has it, the others may take as long again,
// and at least loadPatience. Those that take longer are put aside, and load it before they come back.
func (a *adapters) loadAll(ctx context.Context, servers []*replica, v *adapter) {
	loading, cancel := context.WithCancel(a.life)
	begun := time.Now()
	var loads sync.WaitGroup
	each(servers, func(s *replica) {
		loaded := make(chan struct{})
		loads.Go(func() {
			defer close(loaded)
			switch err := a.load(loading, s, v); {
			case err == nil:
				time.AfterFunc(max(loadPatience, time.Since(begun)), cancel)
			case a.life.Err() != nil:
			case loading.Err() != nil:
				a.markDown(s, fmt.Errorf("%w: the sampler %s takes longer than others to load an adapter",
					agent.ErrModelUnavailable, s.url))
			default:
				a.markDown(s, err)
			}
		})
		a.mu.Lock()
		heard := s.heard
		a.mu.Unlock()
		select {
		case <-loaded:
		case <-heard.Done():
		case <-ctx.Done():
		}
	})
	a.tending.Go(func() {
		loads.Wait()
		cancel()
	})
}

// answering returns the servers that get turns. The caller holds a.mu.
func (a *adapters) answering() []*replica {
	return slices.DeleteFunc(slices.Clone(a.replicas), func(s *replica) bool { return s.down != nil })
}

// having returns the servers that can sample a version. The caller holds a.mu.
func (a *adapters) having(v *adapter) []*replica {
	return slices.DeleteFunc(slices.Clone(a.replicas), func(s *replica) bool { return !s.ready(v) })
}

func (a *adapters) servers() (ready, aside int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ready = len(a.answering())
	if a.current != nil {
		ready = len(a.having(a.current))
	}
	return ready, len(a.replicas) - ready
}

// Hold keeps a version on the servers until it is released and another one is published. Turns of it are sampled from
// it alone, and wait until a server has it.
func (v *adapter) Hold() (release func()) {
	count := func(n int) {
		v.of.mu.Lock()
		defer v.of.mu.Unlock()
		v.holds += n
	}
	count(1)
	return func() { count(-1) }
}

// takeIdle takes the versions that are not sampled, are not held, and have no turns under way from all servers, which
// may still have them loaded. The caller holds a.mu.
func (a *adapters) takeIdle() (idle []*adapter) {
	a.versions = slices.DeleteFunc(a.versions, func(v *adapter) bool {
		v.unloaded = v != a.current && v.calls == 0 && v.holds == 0
		if v.unloaded {
			idle = append(idle, v)
		}
		return v.unloaded
	})
	for _, s := range a.replicas {
		for _, v := range idle {
			delete(s.has, v)
		}
	}
	a.leaving = append(a.leaving, idle...)
	return idle
}

// unload unloads versions from the servers that answer, and removes their files. The other servers unload them when
// they are back.
func (a *adapters) unload(ctx context.Context, versions []*adapter) {
	ctx, cancel := context.WithTimeout(ctx, unloadTimeout)
	defer cancel()
	a.mu.Lock()
	ready := a.answering()
	a.mu.Unlock()
	each(ready, func(s *replica) {
		for _, v := range versions {
			if err := s.unload(ctx, v.name); err != nil {
				a.client.log.Debug("adapter not unloaded", "sampler", s.url, "adapter", v.name, "error", err)
			}
		}
	})
	for _, v := range versions {
		if err := os.RemoveAll(v.dir); err != nil {
			a.client.log.Warn("adapter not removed", "error", err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.life.Err() == nil { // otherwise close unloads them
		a.leaving = slices.DeleteFunc(a.leaving, func(v *adapter) bool { return slices.Contains(versions, v) })
	}
}

func (a *adapters) close() {
	a.end()
	a.tending.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	a.mu.Lock()
	all := slices.Concat(a.leaving, a.versions)
	a.current, a.versions = nil, nil
	for _, v := range all {
		v.unloaded = true
	}
	a.mu.Unlock()
	a.unload(ctx, all)
}

// check samples sequences from every server that answers. The Group of a row is its server.
func (a *adapters) check(ctx context.Context, seed int64, tokens int) ([]rl.Row, error) {
	for start := time.Now(); ; {
		var servers []*replica
		err := a.await(ctx, func() bool {
			servers = a.having(a.current)
			return len(servers) > 0
		})
		if err != nil {
			return nil, err
		}
		rows, failed, err := a.sampled(ctx, servers, seed, tokens)
		if err != nil || len(rows) > 0 {
			return rows, err
		}
		if err := cmp.Or(ctx.Err(), failed); ctx.Err() != nil || time.Since(start) > a.client.patience {
			return nil, err
		}
	}
}

// sampled samples sequences from servers. The first error is that of the servers at fault, which are marked down, the
// second that of all others.
func (a *adapters) sampled(ctx context.Context, servers []*replica, seed int64, tokens int) ([]rl.Row, error, error) {
	n := max(len(servers), min(checkSequences, tokens))
	rows, failed, errs := make([]rl.Row, n), make([]error, n), make([]error, n)
	var asked sync.WaitGroup
	for i := range n {
		asked.Go(func() {
			s := servers[i%len(servers)]
			sampling := agent.OnPolicy(new(1.0))
			sampling.Seed = new((seed + int64(i)) & math.MaxInt32)
			a.mu.Lock()
			v := a.current
			v.calls++
			s.beginTurn()
			asking, done := during(ctx, s.heard)
			a.mu.Unlock()
			defer done()
			reply, err := a.turn(asking, v, s, agent.Request{
				Messages: []agent.Message{{Role: agent.RoleUser, Content: "check"}}, Sampling: sampling,
				MaxTokens: (tokens + n - 1) / n, Tokens: true,
			})
			err = alive(asking, err)
			switch {
			case err != nil && atFault(err) && ctx.Err() == nil:
				a.markDown(s, err)
				failed[i] = err
			case err != nil:
				errs[i] = fmt.Errorf("%s: %w", s.url, err)
			case reply.Tokens == nil:
				errs[i] = fmt.Errorf("%s: its replies have no token ids with logprobs", s.url)
			default:
				rows[i] = rowOf(checkTask, i, reply.Tokens)
				rows[i].Group = s.url
			}
		})
	}
	asked.Wait()
	rows = slices.DeleteFunc(rows, func(r rl.Row) bool { return len(r.IDs) == 0 })
	slices.SortStableFunc(rows, func(a, b rl.Row) int { return cmp.Compare(a.Group, b.Group) })
	return rows, errors.Join(failed...), errors.Join(errs...)
}

var (
	_ sampler = (*adapters)(nil)
	_ rl.Held = (*adapter)(nil)
)
