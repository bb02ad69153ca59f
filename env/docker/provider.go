package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"deepswe/env"
)

// Options say which daemons to use and how. The zero value uses the daemon that the docker command uses.
type Options struct {
	// Hosts are the daemons: unix:///path, tcp://host:port (TLS as DOCKER_CERT_PATH and DOCKER_TLS_VERIFY say),
	// ssh://user@host, or context:NAME. Empty is what DOCKER_HOST, DOCKER_CONTEXT or the current context name.
	Hosts []string
	// Executable is a static Linux build of deepswe for the daemons' architecture, which becomes the guest: this program
	// when empty, or deepswe-linux-ARCH beside it where this program would not run there.
	Executable string
	// Log gets the errors of background work; nothing is logged when nil.
	Log *slog.Logger
	// Warm is how many sandboxes [Provider.Prefetch] keeps ready: none when 0.
	Warm int
	// Mirror is a registry (host[:port][/path]) that is asked for Docker Hub's images first.
	Mirror string
	// ImageBudget is how many bytes all images of a daemon may take. Beyond it, the least recently used ones that this
	// program pulled, built or prepared are removed; a user's own image never is. No limit when 0.
	ImageBudget int64
	// State is the directory for what must outlive the process, which is when an image was last used: a directory below
	// the user's cache when empty.
	State string
	// Progress is told how pulls and builds go.
	Progress func(env.Progress)
}

// Provider starts sandboxes on one or more daemons.
type Provider struct {
	options  Options
	log      *slog.Logger
	owner    string
	waits    waits
	hostname string
	machine  string
	state    string
	daemons  []*daemon
	warm     *pool

	// life ends with Close, and with it everything in the background, which work counts.
	life  context.Context
	end   context.CancelFunc
	work  sync.WaitGroup
	begun sync.Once

	mu     sync.Mutex
	builds map[string]*buildContext // by folder and by the reference of the image that is built from it
}

var _ env.Provider = (*Provider)(nil)

// New asks every daemon whether it is there. It fails with a [*DaemonError] when none is; with several hosts, those
// that do not answer are left out until they do.
func New(ctx context.Context, o Options) (*Provider, error) {
	p := &Provider{
		options: o, log: o.Log, owner: thisOwner().String() + "/" + nonce(), machine: thisMachine(), state: o.State,
		builds: map[string]*buildContext{}, waits: defaultWaits(),
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.hostname, _ = os.Hostname()
	if p.state == "" {
		if cache, err := os.UserCacheDir(); err == nil {
			p.state = filepath.Join(cache, "deepswe")
		}
	}
	hosts := o.Hosts
	if len(hosts) == 0 {
		hosts = []string{""}
	}
	where := hostEnvironment()
	for _, h := range hosts {
		ep, err := where.resolve(h)
		if err != nil {
			return nil, err
		}
		d, err := newDaemon(p, ep)
		if err != nil {
			return nil, err
		}
		p.daemons = append(p.daemons, d)
	}
	p.life, p.end = context.WithCancel(context.WithoutCancel(ctx))
	p.warm = newPool(p)
	if err := p.connect(ctx); err != nil {
		p.end()
		return nil, errors.Join(err, p.closeClients())
	}
	return p, nil
}

// connect greets all daemons at once.
func (p *Provider) connect(ctx context.Context) error {
	failures := make([]error, len(p.daemons))
	var wg sync.WaitGroup
	for i, d := range p.daemons {
		wg.Go(func() {
			if failures[i] = d.greet(ctx); failures[i] != nil {
				d.markDown(failures[i])
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	answered := 0
	for _, err := range failures {
		if err == nil {
			answered++
		}
	}
	if answered == 0 {
		return errors.Join(failures...)
	}
	return nil
}

// Name is the word of --env.
func (p *Provider) Name() string { return "docker" }

// Capabilities are those that every daemon of the provider has. SeparateUser is not among them, because it depends on
// the image: commands run as its user, or as user 1000 over a repository that was copied in, but where the image's user
// is root, they are root too, with none of its powers.
func (p *Provider) Capabilities() env.Capabilities {
	c := env.Capabilities{
		Images: true, Isolated: true, NetworkOff: true, MemoryLimit: true, CPULimit: true, ProcessLimit: true,
	}
	for _, d := range p.daemons {
		facts, up := d.known()
		if !up {
			continue
		}
		c.MemoryLimit = c.MemoryLimit && facts.memoryLimit
		c.CPULimit = c.CPULimit && facts.cpuLimit
		c.ProcessLimit = c.ProcessLimit && facts.processLimit
	}
	return c
}

// begin starts the watch over each daemon. A provider that only lists or reaps needs none.
func (p *Provider) begin() {
	p.begun.Do(func() {
		for _, d := range p.daemons {
			p.work.Go(d.watch)
		}
	})
}

// Close removes what the provider keeps for itself: warm sandboxes and the lease.
func (p *Provider) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := p.warm.close(ctx)
	p.end()
	p.work.Wait()
	for _, d := range p.daemons {
		err = errors.Join(err, d.dropLease(ctx))
	}
	return errors.Join(err, p.closeClients())
}

func (p *Provider) closeClients() error {
	var err error
	for _, d := range p.daemons {
		err = errors.Join(err, d.cli.Close())
	}
	return err
}
