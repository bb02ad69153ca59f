package docker

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"github.com/moby/moby/client/pkg/versions"

	"deepswe/env"
	"deepswe/env/fleet"
)

// Time limits for requests. A busy daemon takes seconds to create a container.
const (
	callTimeout   = 2 * time.Minute
	removeTimeout = 60 * time.Second
)

// pullsAtOnce limits concurrent pulls and builds on each daemon.
const pullsAtOnce = 3

// quiet is how long after a daemon went down its further failures are not logged as warnings.
const quiet = 10 * time.Second

// acquire takes a slot of a semaphore, or fails when ctx ends first.
func acquire(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type daemon struct {
	p    *Provider
	host string
	cli  *client.Client

	starts chan struct{} // a semaphore of container starts
	pulls  chan struct{} // a semaphore of pulls and builds

	greeting   callGroup[struct{}]
	installing callGroup[*installation]
	resolving  callGroup[image]
	tidied     sync.Once
	orphans    fleet.Orphans[string] // containers
	own        ownImages

	mu           sync.Mutex
	facts        facts
	down         error
	lastDown     time.Time
	up           context.Context // ends when the daemon is marked down
	wentDown     context.CancelCauseFunc
	installation *installation // nil until complete
	live         map[string]*Sandbox
	images       map[string]image
	users        map[string]user
	noQuota      bool // the daemon has rejected a quota
}

// facts are what a daemon reports about itself.
type facts struct {
	system.Info
	arch string // amd64, arm64
}

func newDaemon(p *Provider, ep endpoint) (*daemon, error) {
	cli, err := ep.dial()
	if err != nil {
		return nil, fmt.Errorf("docker host %s: %w", ep.host, err)
	}
	d := &daemon{
		p: p, host: ep.host, cli: cli, pulls: make(chan struct{}, pullsAtOnce),
		live: map[string]*Sandbox{}, images: map[string]image{}, users: map[string]user{},
	}
	d.own = ownImages{d: d, pins: map[string]int{}, touched: map[string]time.Time{}}
	return d, nil
}

// DaemonError says why a daemon cannot be used, and how to fix it.
type DaemonError struct {
	Host string
	// Reason is the problem in plain words; Remedy is the command or setting that solves it.
	Reason, Remedy string
	Err            error
}

func (e *DaemonError) Error() string {
	text := fmt.Sprintf("docker daemon at %s: %s", e.Host, e.Reason)
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text + "; to fix: " + e.Remedy
}

// Fix implements env.Fixer.
func (e *DaemonError) Fix() (problem, fix string) { return e.Host + ": " + e.Reason, e.Remedy }

// Unwrap makes every DaemonError an env.ErrInfrastructure.
func (e *DaemonError) Unwrap() []error { return []error{env.ErrInfrastructure, e.Err} }

// greet negotiates the API version and reads what the daemon supports.
func (d *daemon) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.p.waits.ping)
	defer cancel()
	ping, err := d.cli.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err != nil {
		return d.unreachable(err, ping.APIVersion)
	}
	if ping.OSType != "" && ping.OSType != "linux" {
		return &DaemonError{d.host, "it runs " + ping.OSType + " containers", "switch it to Linux containers", nil}
	}
	result, err := d.cli.Info(ctx, client.InfoOptions{})
	if err != nil {
		return d.unreachable(err, ping.APIVersion)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.facts = newFacts(result.Info)
	if d.starts == nil {
		// Starting more containers than this at once only slows a daemon down.
		d.starts = make(chan struct{}, min(max(2*d.facts.NCPU, 2), 8))
	}
	if d.up == nil || d.up.Err() != nil {
		d.up, d.wentDown = context.WithCancelCause(d.p.life)
	}
	d.down = nil
	return nil
}

// newFacts corrects what a daemon reports. A rootless Podman on control groups of version 1 announces limits and
// ignores them.
func newFacts(info system.Info) facts {
	const store, ofRoot = "/containers/storage", "/var/lib/containers/storage"
	if root := info.DockerRootDir; info.CgroupVersion == "1" && strings.HasSuffix(root, store) && root != ofRoot {
		info.MemoryLimit, info.SwapLimit, info.CPUCfsQuota, info.PidsLimit = false, false, false, false
	}
	return facts{info, goArch(info.Architecture)}
}

// goArch converts the machine name that a daemon reports to Go's.
func goArch(machine string) string {
	switch machine {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return machine
}

// unreachable explains why a daemon cannot be reached.
func (d *daemon) unreachable(err error, api string) error {
	reason, remedy := "it cannot be reached", "docker --host "+d.host+" version has to work"
	text := err.Error()
	switch {
	case api != "" && versions.LessThan(api, client.MinAPIVersion):
		reason = "it is too old: it speaks API " + api + ", and the oldest supported is " + client.MinAPIVersion +
			" (Docker 19.03)"
		remedy = "upgrade Docker: sudo apt-get install --only-upgrade docker-ce"
	case strings.Contains(text, "permission denied") && strings.HasPrefix(d.host, "unix:"):
		reason, remedy = "permission denied", "sudo usermod -aG docker $USER, then log in again"
	case strings.HasPrefix(d.host, "ssh:"):
		remedy = "ssh " + d.host + " docker version has to work"
	case containsAny(text, "TLS", "HTTPS", "certificate", "malformed HTTP response"):
		reason = "no agreement on TLS"
		remedy = "set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH to the directory with ca.pem, cert.pem and key.pem"
	case errors.Is(err, context.DeadlineExceeded):
		reason, remedy = "it does not answer", "sudo "+service("restart")
	case client.IsErrConnectionFailed(err) && strings.HasPrefix(d.host, "unix:"):
		reason, remedy = "nothing listens there", "sudo "+service("start")
	}
	return &DaemonError{Host: d.host, Reason: reason, Remedy: remedy, Err: err}
}

// service returns the command that starts or restarts this machine's daemon.
func service(verb string) string {
	if _, err := exec.LookPath("systemctl"); err != nil {
		return "service docker " + verb
	}
	return "systemctl " + verb + " docker"
}

func (d *daemon) known() (facts, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.facts, d.down == nil
}

// remove removes a container and its anonymous volumes, whether or not it is running. It succeeds if the container
// no longer exists. If removing fails, it is retried when the daemon is back.
func (d *daemon) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	_, err := d.cli.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	if errdefs.IsConflict(err) {
		// The container has ended by itself, and the daemon is already removing it.
		if err = d.awaitGone(ctx, id); err == nil {
			return nil
		}
	}
	d.orphans.Add(id)
	return fmt.Errorf("%w: docker daemon at %s: remove container: %w", env.ErrInfrastructure, d.host, err)
}

func (d *daemon) awaitGone(ctx context.Context, id string) error {
	for {
		_, err := d.cli.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = env.Sleep(ctx, 20*time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
}

// retryOrphans removes what could not be removed while the daemon was unreachable.
func (d *daemon) retryOrphans() {
	if err := d.orphans.Retry(func(id string) error { return d.remove(d.p.life, id) }); err != nil {
		d.p.log.Warn("removing what is left", "error", err)
	}
}

// infrastructure marks an error of the daemon as an infrastructure failure. Failures of the task's own commands,
// and errors that are already marked, are returned as they are.
func (d *daemon) infrastructure(ctx context.Context, operation string, err error) error {
	_, prepare := errors.AsType[*env.PrepareError](err)
	_, build := errors.AsType[*BuildError](err)
	if err == nil || prepare || build || errors.Is(err, env.ErrInfrastructure) || errors.Is(err, env.ErrUnsupported) {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", operation, context.Cause(ctx))
	}
	if client.IsErrConnectionFailed(err) {
		return fmt.Errorf("%s: %w", operation, d.unreachable(err, ""))
	}
	return fmt.Errorf("%w: docker daemon at %s: %s: %w", env.ErrInfrastructure, d.host, operation, err)
}
