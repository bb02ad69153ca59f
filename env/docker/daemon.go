package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/moby/moby/client/pkg/versions"

	"deepswe/env"
)

// How long the daemon may take. A busy one takes seconds to create a container, and never minutes to answer a ping.
const (
	pingTimeout   = 10 * time.Second
	callTimeout   = 2 * time.Minute
	removeTimeout = 30 * time.Second
)

// quiet is how long after a daemon went out of use the next time is not worth a warning.
const quiet = 10 * time.Second

// daemon is one Docker daemon, and what this provider has on it.
type daemon struct {
	p    *Provider
	host string
	cli  *client.Client

	starts chan struct{} // one token for each container being started
	pulls  chan struct{} // one for each image being pulled

	greeted  flights[struct{}]
	settled  flights[*site]
	resolved flights[image]
	prepared flights[image]
	tidied   sync.Once

	mu      sync.Mutex
	facts   facts
	down    error
	lastOut time.Time
	up      context.Context // ends when the daemon goes out of use
	fell    context.CancelCauseFunc
	site    *site // what sandboxes need on the daemon; nil until it is there
	live    map[string]*Sandbox
	coming  int // sandboxes being started
	images  map[string]image
	users   map[string]user
	pins    map[string]int       // images that a start is under way with
	touched map[string]time.Time // when an image's use was last written down
	orphans map[string]struct{}  // containers that could not be removed yet
}

// facts are what a daemon says about itself when it is greeted.
type facts struct {
	host         string
	version      string // of the engine
	api          string // the version that is spoken
	system       string // of the machine, for people
	arch         string // amd64, arm64
	cpus         int
	memory       int64
	storage      string // storage driver
	cgroup       string // version 1 or 2, and the driver
	memoryLimit  bool
	cpuLimit     bool
	processLimit bool
	id           string
	hub          string // the name of Docker Hub in a store of credentials
}

func newDaemon(p *Provider, ep endpoint) (*daemon, error) {
	cli, err := ep.dial()
	if err != nil {
		return nil, fmt.Errorf("docker host %s: %w", ep.host, err)
	}
	pulls := p.options.Pulls
	if pulls <= 0 {
		pulls = 3
	}
	return &daemon{
		p: p, host: ep.host, cli: cli, pulls: make(chan struct{}, pulls),
		live: map[string]*Sandbox{}, images: map[string]image{}, users: map[string]user{},
		pins: map[string]int{}, touched: map[string]time.Time{}, orphans: map[string]struct{}{}, facts: facts{host: ep.host},
	}, nil
}

// DaemonError says why a daemon cannot be used, and how to fix that.
type DaemonError struct {
	Host string
	// Reason is the problem in plain words, Remedy the command or the setting that solves it.
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

// greet negotiates the API version and learns what the daemon can do.
func (d *daemon) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
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
	info := result.Info
	facts := facts{
		host: d.host, version: info.ServerVersion, api: d.cli.ClientVersion(), system: info.OperatingSystem,
		arch: goArch(info.Architecture), cpus: info.NCPU, memory: info.MemTotal, storage: info.Driver,
		cgroup:      strings.TrimSpace(info.CgroupVersion + " " + info.CgroupDriver),
		memoryLimit: info.MemoryLimit, cpuLimit: info.CPUCfsQuota, processLimit: info.PidsLimit,
		id: info.ID, hub: info.IndexServerAddress,
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.facts = facts
	if d.starts == nil {
		parallel := d.p.options.Parallel
		if parallel <= 0 {
			parallel = min(max(2*facts.cpus, 2), 8)
		}
		d.starts = make(chan struct{}, parallel)
	}
	if d.up == nil || d.up.Err() != nil {
		d.up, d.fell = context.WithCancelCause(d.p.life)
	}
	d.down = nil
	return nil
}

// goArch turns the machine name that a daemon reports into Go's.
func goArch(machine string) string {
	switch machine {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return machine
}

// unreachable puts a failed greeting into words.
func (d *daemon) unreachable(err error, api string) error {
	e := &DaemonError{Host: d.host, Err: err}
	text := err.Error()
	switch {
	case api != "" && versions.LessThan(api, client.MinAPIVersion):
		e.Reason = "it is too old: it speaks API " + api + ", and " + client.MinAPIVersion + " (Docker 19.03) is the oldest that is understood"
		e.Remedy = "upgrade Docker: sudo apt-get install --only-upgrade docker-ce"
	case strings.Contains(text, "permission denied") && strings.HasPrefix(d.host, "unix:"):
		e.Reason = "permission denied"
		e.Remedy = "sudo usermod -aG docker $USER, then log in again"
	case strings.HasPrefix(d.host, "ssh:"):
		e.Reason = "it cannot be reached"
		e.Remedy = "ssh " + d.host + " docker version has to work"
	case strings.Contains(text, "TLS") || strings.Contains(text, "HTTPS") || strings.Contains(text, "certificate") || strings.Contains(text, "malformed HTTP response"):
		e.Reason = "no agreement on TLS"
		e.Remedy = "set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH to the directory with ca.pem, cert.pem and key.pem"
	case errors.Is(err, context.DeadlineExceeded):
		e.Reason = "it does not answer"
		e.Remedy = "sudo " + service("restart")
	case client.IsErrConnectionFailed(err) && strings.HasPrefix(d.host, "unix:"):
		e.Reason = "nothing listens there"
		e.Remedy = "sudo " + service("start")
	default:
		e.Reason = "it cannot be reached"
		e.Remedy = "docker --host " + d.host + " version has to work"
	}
	return e
}

// service is the command that does something to this machine's daemon.
func service(verb string) string {
	if _, err := exec.LookPath("systemctl"); err != nil {
		return "service docker " + verb
	}
	return "systemctl " + verb + " docker"
}

// known returns what is known about the daemon, and whether it is in use.
func (d *daemon) known() (facts, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.facts, d.down == nil
}

// takeOut stops using the daemon. Its sandboxes are cut off, because a connection to a machine that has gone can stay
// silent for many minutes.
func (d *daemon) takeOut(cause error) {
	d.mu.Lock()
	if d.down != nil || d.p.life.Err() != nil {
		d.mu.Unlock()
		return
	}
	d.down = cause
	level := slog.LevelWarn
	if time.Since(d.lastOut) < quiet {
		// A daemon that is shutting down still answers on connections that it has, and goes in and out of use.
		level = slog.LevelDebug
	}
	d.lastOut = time.Now()
	if d.site != nil {
		d.orphans[d.site.lease] = struct{}{}
	}
	d.site, d.images = nil, map[string]image{}
	if d.fell != nil {
		d.fell(cause)
	}
	cut := make([]*Sandbox, 0, len(d.live))
	for _, s := range d.live {
		cut = append(cut, s)
	}
	d.mu.Unlock()
	d.p.log.Log(d.p.life, level, "docker daemon out of use", "host", d.host, "sandboxes", len(cut), "error", cause)
	for _, s := range cut {
		_ = s.stream.Close()
	}
}

// while ends with ctx, and as soon as the daemon goes out of use: a request to a machine that has gone may never come
// back by itself.
func (d *daemon) while(ctx context.Context) (context.Context, context.CancelFunc) {
	d.mu.Lock()
	up := d.up
	d.mu.Unlock()
	if up == nil {
		return ctx, func() {}
	}
	during, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(up, func() { cancel(context.Cause(up)) })
	return during, func() {
		stop()
		cancel(nil)
	}
}

// suspect looks whether the daemon is still there after something went wrong with it, and takes it out when it is not.
func (d *daemon) suspect() (gone bool) {
	ctx, cancel := context.WithTimeout(d.p.life, pingTimeout)
	defer cancel()
	_, err := d.cli.Ping(ctx, client.PingOptions{})
	if err == nil || d.p.life.Err() != nil {
		return false
	}
	d.takeOut(d.unreachable(err, ""))
	return true
}

// usable tells whether the daemon is in use. One that is not is asked again first, by one caller for all.
func (d *daemon) usable(ctx context.Context) error {
	if _, up := d.known(); up {
		return nil
	}
	_, err := d.greeted.do(ctx, d.p.life, &d.p.work, "", func(ctx context.Context) (struct{}, error) {
		err := d.greet(ctx)
		if err == nil {
			d.p.log.Info("docker daemon back in use", "host", d.host)
		}
		return struct{}{}, err
	})
	return err
}

// remove removes a container and its anonymous volumes, whatever it is doing. One that is gone, or going, is fine. What
// cannot be removed now is tried again when the daemon is back.
func (d *daemon) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	_, err := d.cli.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	if errdefs.IsConflict(err) {
		// It ended by itself, and the daemon is at it already.
		if err = d.awaitGone(ctx, id); err == nil {
			return nil
		}
	}
	d.mu.Lock()
	d.orphans[id] = struct{}{}
	d.mu.Unlock()
	return fmt.Errorf("%w: docker daemon at %s: remove container: %w", env.ErrInfrastructure, d.host, err)
}

func (d *daemon) awaitGone(ctx context.Context, id string) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := d.cli.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		switch {
		case errdefs.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// retryOrphans removes what could not be removed while the daemon was away.
func (d *daemon) retryOrphans() {
	d.mu.Lock()
	again := d.orphans
	d.orphans = map[string]struct{}{}
	d.mu.Unlock()
	for id := range again {
		if err := d.remove(d.p.life, id); err != nil {
			d.p.log.Warn("removing a container", "error", err)
		}
	}
}

// infrastructure marks an error of the daemon as ours, with the name of what was tried. A cancelled context stays what
// it is, and so does what has been put into words already.
func (d *daemon) infrastructure(ctx context.Context, operation string, err error) error {
	if err == nil || errors.Is(err, env.ErrInfrastructure) || errors.Is(err, env.ErrUnsupported) {
		return err
	}
	if tasksOwn(err) {
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
