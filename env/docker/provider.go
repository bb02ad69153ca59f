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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/fleet"
)

// Options selects daemons and configures the sandboxes on them. The zero value uses the same daemon as the docker
// command.
type Options struct {
	// Hosts are the daemons, as unix:///path, tcp://host:port (with TLS as in DOCKER_CERT_PATH and
	// DOCKER_TLS_VERIFY), ssh://user@host or context:NAME. If empty, DOCKER_HOST, DOCKER_CONTEXT or the current
	// context selects the daemon.
	Hosts []string
	// Executable is a static Linux build of deepswe for the daemons' architecture, which becomes the guest. If
	// empty, it is this program or, if that would not run there, deepswe-linux-ARCH in the same directory.
	Executable string
	// Log receives the errors of background work; nil discards them.
	Log *slog.Logger
	// Warm is how many sandboxes [Provider.Prefetch] keeps ready; 0 means none.
	Warm int
	// Mirror is a registry (host[:port][/path]) to try first for images of Docker Hub.
	Mirror string
	// ImageBudget is how many bytes all images of a daemon may use; 0 means no limit. If they exceed it, the least
	// recently used images that deepswe pulled, built or prepared are removed, but never a user's own.
	ImageBudget int64
	// State is the directory that records when images were last used; if empty, it is in the user's cache
	// directory.
	State string
	// Limits replace zero limits of a spec. Where they are zero as well, the defaults of env.Limits apply.
	Limits env.Limits
	// Progress receives the progress of pulls and builds.
	Progress func(env.Progress)
}

// Provider starts sandboxes on one or more daemons.
type Provider struct {
	options  Options
	log      *slog.Logger
	owner    string
	waits    waits
	hostname string
	state    string
	daemons  []*daemon
	fleet    fleet.Fleet[*daemon, *Sandbox]

	// life ends at Close, and with it the background work, which work counts.
	life  context.Context
	end   context.CancelFunc
	work  sync.WaitGroup
	begun sync.Once

	mu     sync.Mutex
	builds map[string]*buildContext // keyed by folder, and by the reference of its image
}

var (
	_ env.Provider  = (*Provider)(nil)
	_ env.Diagnoser = (*Provider)(nil)
)

// New connects to the daemons. It returns a [*DaemonError] if none responds; of several, those that do not respond
// are left out until they do.
func New(ctx context.Context, o Options) (*Provider, error) {
	p := &Provider{
		options: o, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		owner: fleet.This().String() + "/" + fleet.Nonce(), state: o.State,
		builds: map[string]*buildContext{}, waits: defaultWaits(),
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
	p.fleet = fleet.Fleet[*daemon, *Sandbox]{
		Places: p.daemons, Warm: o.Warm, Log: p.log, Life: p.life, Work: &p.work,
	}
	if err := p.connect(ctx); err != nil {
		p.end()
		return nil, errors.Join(err, p.closeClients())
	}
	return p, nil
}

// connect contacts all daemons in parallel.
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

// Name returns "docker", the value of --env.
func (p *Provider) Name() string { return "docker" }

// Capabilities returns what all daemons of the provider support. SeparateUser is false, because it depends on the
// image: commands run as the image's user, or as user 1000 if the repository was copied in. If the image's user is
// root, commands run as root without capabilities.
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

// beginWatch starts watching the daemons. A provider that only lists or reaps does not need it.
func (p *Provider) beginWatch() {
	p.begun.Do(func() {
		for _, d := range p.daemons {
			p.work.Go(d.watch)
		}
	})
}

// Close removes the provider's own objects: warm sandboxes, the lease, and what could not be removed before.
func (p *Provider) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := p.fleet.Close(ctx)
	p.end()
	p.work.Wait()
	for _, d := range p.daemons {
		err = errors.Join(err, d.installer.close(ctx))
		if d.orphans.Len() > 0 && d.ping(ctx) == nil {
			d.retryOrphans()
		}
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

// Diagnose implements env.Diagnoser, with one finding per daemon.
func (p *Provider) Diagnose(context.Context) []env.Finding {
	var findings []env.Finding
	for _, d := range p.daemons {
		findings = append(findings, d.finding())
	}
	return findings
}

func (d *daemon) finding() env.Finding {
	d.answers.Lock()
	f, down := d.facts, d.down
	d.answers.Unlock()
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

// Sample implements env.Diagnoser. It returns the smallest image with a shell on the first daemon. Checking an
// image requires a container, so it tries only a few.
func (p *Provider) Sample(ctx context.Context) (s env.Spec, lacking string, err error) {
	const most, shell = 10, "/bin/sh"
	d := p.daemons[0]
	images, err := d.sampleImages(ctx)
	if err != nil {
		return env.Spec{}, "", err
	}
	for _, ref := range images[:min(most, len(images))] {
		if has, err := d.images.contains(ctx, ref, shell); has || err != nil {
			return env.Spec{Image: ref}, "", err
		}
	}
	// The lease's image is empty and part of the installation.
	if _, err := d.installer.get(ctx); err != nil {
		return env.Spec{}, "", err
	}
	return env.Spec{Image: leaseImage, Dir: leaseDir}, "no image with " + shell + " is on the daemon", nil
}

// sampleImages lists images that have a name, smallest first, without deepswe's own.
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

// Labels of containers, volumes and images; see the package documentation.
const (
	labelOwner    = "deepswe.owner"    // fleet.Owner.String/nonce
	labelHost     = "deepswe.host"     // the owner's host name, for people
	labelKind     = "deepswe.kind"     // one of the kinds below
	labelRun      = "deepswe.run"      // Spec.Run
	labelRollout  = "deepswe.rollout"  // Spec.Rollout
	labelCreated  = "deepswe.created"  // Unix seconds
	labelPrepared = "deepswe.prepared" // on prepared images: the hash of what was prepared
	labelBuilt    = "deepswe.built"    // on built images: the hash of the folder
	labelUser     = "deepswe.user"     // on prepared images: the User of the original image
)

// The purposes of our containers.
const (
	kindSandbox  = "sandbox"  // runs an agent's commands
	kindPrepare  = "prepare"  // becomes a prepared image
	kindOriginal = "original" // never started: for reading original files
	kindLease    = "lease"    // never started: shows that its owner is alive, and keeps the guest's volume in use
	kindFill     = "fill"     // never started: for writing to the guest's volume
)

// labels returns the labels that all containers and volumes of this provider have.
func (p *Provider) labels(kind, run, rollout string) map[string]string {
	return map[string]string{
		labelOwner:   p.owner,
		labelHost:    p.hostname,
		labelKind:    kind,
		labelRun:     run,
		labelRollout: rollout,
		labelCreated: strconv.FormatInt(time.Now().Unix(), 10),
	}
}
