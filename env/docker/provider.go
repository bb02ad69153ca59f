package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/owner"
	"deepswe/env/warm"
)

// Options say which daemons to use and how. The zero value uses the daemon that the docker command uses.
type Options struct {
	// Hosts are the daemons: unix:///path, tcp://host:port (TLS as DOCKER_CERT_PATH and DOCKER_TLS_VERIFY say),
	// ssh://user@host, or context:NAME. Empty is what DOCKER_HOST, DOCKER_CONTEXT or the current context name.
	Hosts []string
	// Executable is a static Linux build of deepswe for the daemons' architecture, which becomes the guest: this program
	// when empty, or deepswe-linux-ARCH beside it where this program would not run there.
	Executable string
	// Log gets the errors of background work; nil logs nothing.
	Log *slog.Logger
	// Warm is how many sandboxes [Provider.Prefetch] keeps ready: none when 0.
	Warm int
	// Mirror is a registry (host[:port][/path]) that is asked for Docker Hub's images first.
	Mirror string
	// ImageBudget is how many bytes all images of a daemon may take. Beyond it, the least recently used ones that this
	// program pulled, built or prepared are removed; a user's own image never is. No limit when 0.
	ImageBudget int64
	// State is the directory that records when an image was last used: one below the user's cache when empty.
	State string
	// Limits are those of a sandbox whose spec names none; a zero field takes the general default.
	Limits env.Limits
	// Progress is called as pulls and builds go on.
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
	warm     *warm.Pool[*Sandbox]

	// life ends with Close, and with it the background work, which work counts.
	life  context.Context
	end   context.CancelFunc
	work  sync.WaitGroup
	begun sync.Once

	mu     sync.Mutex
	builds map[string]*buildContext // by folder and by the reference of the image that is built from it
}

var (
	_ env.Provider  = (*Provider)(nil)
	_ env.Diagnoser = (*Provider)(nil)
)

// New connects to the daemons. It fails with a [*DaemonError] when none answers; with several hosts, those that do not
// answer are left out until they do.
func New(ctx context.Context, o Options) (*Provider, error) {
	p := &Provider{
		options: o, log: o.Log, owner: owner.This().String() + "/" + owner.Nonce(), machine: owner.Machine(), state: o.State,
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
	p.warm = &warm.Pool[*Sandbox]{
		Size: o.Warm, Log: p.log, Life: p.life, Work: &p.work, Boot: p.startOn,
		Claim: func(ctx context.Context, sandbox *Sandbox, s env.Spec) { sandbox.claim(ctx, s) },
	}
	if err := p.connect(ctx); err != nil {
		p.end()
		return nil, errors.Join(err, p.closeClients())
	}
	return p, nil
}

// connect greets all daemons in parallel.
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
	if slices.Contains(failures, nil) {
		return nil
	}
	return errors.Join(failures...)
}

// Name is the word of --env.
func (p *Provider) Name() string { return "docker" }

// Capabilities are those that every daemon of the provider has. SeparateUser is not among them, because it depends on
// the image: commands run as its user, or as user 1000 in a repository that was copied in. Where the image's user is
// root, commands run as root, without root's capabilities.
func (p *Provider) Capabilities() env.Capabilities {
	c := env.Capabilities{
		Images: true, Isolated: true, NetworkOff: true, MemoryLimit: true, CPULimit: true, ProcessLimit: true,
		DiskLimit: true,
	}
	for _, d := range p.daemons {
		facts, up := d.known()
		if !up {
			continue
		}
		c.MemoryLimit = c.MemoryLimit && facts.MemoryLimit
		c.CPULimit = c.CPULimit && facts.CPUCfsQuota
		c.ProcessLimit = c.ProcessLimit && facts.PidsLimit
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
	err := p.warm.Close(ctx)
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

// Diagnose implements env.Diagnoser: one finding for each daemon.
func (p *Provider) Diagnose(context.Context) []env.Finding {
	var findings []env.Finding
	for _, d := range p.daemons {
		findings = append(findings, d.finding())
	}
	return findings
}

func (d *daemon) finding() env.Finding {
	d.mu.Lock()
	f, down := d.facts, d.down
	d.mu.Unlock()
	if down != nil {
		return env.FindingOf("docker", down)
	}
	found := env.Finding{Check: "docker", Status: env.OK, Detail: fmt.Sprintf(
		"Docker %s (API %s) at %s: %s/%s, %d CPUs, %.0f GiB, %s, cgroup %s",
		f.ServerVersion, d.cli.ClientVersion(), d.host, f.OperatingSystem, f.arch, f.NCPU, float64(f.MemTotal)/(1<<30),
		f.Driver, strings.TrimSpace(f.CgroupVersion+" "+f.CgroupDriver))}
	var missing []string
	for _, limit := range []struct {
		name string
		has  bool
	}{{"memory", f.MemoryLimit}, {"CPU", f.CPUCfsQuota}, {"process", f.PidsLimit}} {
		if !limit.has {
			missing = append(missing, limit.name)
		}
	}
	if len(missing) > 0 {
		found.Status = env.Warning
		found.Detail += "; it cannot enforce these limits: " + strings.Join(missing, ", ")
		found.Fix = "give the daemon its control groups: with systemd, Delegate=cpu cpuset io memory pids"
	}
	return found
}

// Sample implements env.Diagnoser, on the first daemon: the smallest image there that has a shell. Each image that is
// looked into takes a container, so only a few are tried.
func (p *Provider) Sample(ctx context.Context) (s env.Spec, lacking string, err error) {
	const most, shell = 10, "/bin/sh"
	d := p.daemons[0]
	images, err := d.sampleImages(ctx)
	if err != nil {
		return env.Spec{}, "", err
	}
	for _, ref := range images[:min(most, len(images))] {
		if has, err := d.contains(ctx, ref, shell); has || err != nil {
			return env.Spec{Image: ref}, "", err
		}
	}
	// The lease's image is empty, and comes with the installation.
	if _, err := d.install(ctx); err != nil {
		return env.Spec{}, "", err
	}
	return env.Spec{Image: leaseImage, Dir: leaseDir}, "no image with " + shell + " is on the daemon", nil
}

// sampleImages lists the images that have a name, the smallest first, without those that deepswe made for itself.
func (d *daemon) sampleImages(ctx context.Context) ([]string, error) {
	list, err := d.cli.ImageList(ctx, client.ImageListOptions{})
	if err != nil {
		return nil, d.infrastructure(ctx, "list images", err)
	}
	size := map[string]int64{}
	var refs []string
	for _, found := range list.Items {
		for _, tag := range found.RepoTags {
			if tag != leaseImage && !derived(tag) && tag != "<none>:<none>" {
				size[tag] = found.Size
				refs = append(refs, tag)
				break
			}
		}
	}
	slices.SortFunc(refs, func(a, b string) int { return cmp.Or(cmp.Compare(size[a], size[b]), cmp.Compare(a, b)) })
	return refs, nil
}
