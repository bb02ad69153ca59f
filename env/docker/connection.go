package docker

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"github.com/moby/moby/client/pkg/versions"

	"deepswe/env"
)

// quiet is how long after a daemon went down its further failures are not logged as warnings.
const quiet = 10 * time.Second

// connection is what is known of a daemon: what it says about itself, and whether it is up.
type connection struct {
	p    *Provider
	host string
	cli  *client.Client

	greeting callGroup[struct{}]

	answers  sync.Mutex // guards what follows
	facts    facts
	starts   chan struct{} // a semaphore of container starts; nil until the daemon has answered
	down     error
	lastDown time.Time
	up       context.Context // ends when the daemon is marked down; nil until it has answered
	wentDown context.CancelCauseFunc
}

// facts are what a daemon reports about itself.
type facts struct {
	system.Info
	arch string // amd64, arm64
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
func (c *connection) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.p.waits.ping)
	defer cancel()
	ping, err := c.cli.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err != nil {
		return c.unreachable(err, ping.APIVersion)
	}
	if ping.OSType != "" && ping.OSType != "linux" {
		return &DaemonError{c.host, "it runs " + ping.OSType + " containers", "switch it to Linux containers", nil}
	}
	result, err := c.cli.Info(ctx, client.InfoOptions{})
	if err != nil {
		return c.unreachable(err, ping.APIVersion)
	}
	c.answers.Lock()
	defer c.answers.Unlock()
	c.facts = newFacts(result.Info)
	if c.starts == nil {
		// Starting more containers than this at once only slows a daemon down.
		c.starts = make(chan struct{}, min(max(2*c.facts.NCPU, 2), 8))
	}
	if c.up == nil || c.up.Err() != nil {
		c.up, c.wentDown = context.WithCancelCause(c.p.life)
	}
	c.down = nil
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
func (c *connection) unreachable(err error, api string) error {
	reason, remedy := "it cannot be reached", "docker --host "+c.host+" version has to work"
	text := err.Error()
	switch {
	case api != "" && versions.LessThan(api, client.MinAPIVersion):
		reason = "it is too old: it speaks API " + api + ", and the oldest supported is " + client.MinAPIVersion +
			" (Docker 19.03)"
		remedy = "upgrade Docker: sudo apt-get install --only-upgrade docker-ce"
	case strings.Contains(text, "permission denied") && strings.HasPrefix(c.host, "unix:"):
		reason, remedy = "permission denied", "sudo usermod -aG docker $USER, then log in again"
	case strings.HasPrefix(c.host, "ssh:"):
		remedy = "ssh " + c.host + " docker version has to work"
	case containsAny(text, "TLS", "HTTPS", "certificate", "malformed HTTP response"):
		reason = "no agreement on TLS"
		remedy = "set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH to the directory with ca.pem, cert.pem and key.pem"
	case errors.Is(err, context.DeadlineExceeded):
		reason, remedy = "it does not answer", "sudo "+service("restart")
	case client.IsErrConnectionFailed(err) && strings.HasPrefix(c.host, "unix:"):
		reason, remedy = "nothing listens there", "sudo "+service("start")
	}
	return &DaemonError{Host: c.host, Reason: reason, Remedy: remedy, Err: err}
}

// service returns the command that starts or restarts this machine's daemon.
func service(verb string) string {
	if _, err := exec.LookPath("systemctl"); err != nil {
		return "service docker " + verb
	}
	return "systemctl " + verb + " docker"
}

func (c *connection) known() (facts, bool) {
	c.answers.Lock()
	defer c.answers.Unlock()
	return c.facts, c.down == nil
}

// whileUp returns a context that ends with ctx or when the daemon is marked down, because a request to an
// unreachable machine may never return by itself.
func (c *connection) whileUp(ctx context.Context) (context.Context, context.CancelFunc) {
	c.answers.Lock()
	up := c.up
	c.answers.Unlock()
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

// usable returns an error if the daemon is down, after trying to connect again, once for all callers.
func (c *connection) usable(ctx context.Context) error {
	if _, up := c.known(); up {
		return nil
	}
	_, err := c.greeting.do(ctx, c.p.life, &c.p.work, "", func(ctx context.Context) (struct{}, error) {
		err := c.greet(ctx)
		if err == nil {
			c.p.log.Info("docker daemon back in use", "host", c.host)
		}
		return struct{}{}, err
	})
	return err
}

// setDown records that the daemon is down, and reports whether it was up until now. again is set if it went down a
// moment before as well.
func (c *connection) setDown(cause error) (was, again bool) {
	c.answers.Lock()
	defer c.answers.Unlock()
	if c.down != nil || c.p.life.Err() != nil {
		return false, false
	}
	again = time.Since(c.lastDown) < quiet
	c.down, c.lastDown = cause, time.Now()
	if c.wentDown != nil {
		c.wentDown(cause)
	}
	return true, again
}

// silence says why the daemon does not answer; nil if it does.
func (c *connection) silence() error {
	err := c.ping(c.p.life)
	if err == nil || c.p.life.Err() != nil {
		return nil
	}
	return c.unreachable(err, "")
}

func (c *connection) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.p.waits.ping)
	defer cancel()
	_, err := c.cli.Ping(ctx, client.PingOptions{})
	return err
}

// worked reports whether the daemon has ever answered.
func (c *connection) worked() bool {
	c.answers.Lock()
	defer c.answers.Unlock()
	return c.up != nil
}

// infrastructure marks an error of the daemon as an infrastructure failure. Failures of the task's own commands,
// and errors that are already marked, are returned as they are.
func (c *connection) infrastructure(ctx context.Context, operation string, err error) error {
	_, prepare := errors.AsType[*env.PrepareError](err)
	_, build := errors.AsType[*BuildError](err)
	if err == nil || prepare || build || errors.Is(err, env.ErrInfrastructure) || errors.Is(err, env.ErrUnsupported) {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", operation, context.Cause(ctx))
	}
	if client.IsErrConnectionFailed(err) {
		return fmt.Errorf("%s: %w", operation, c.unreachable(err, ""))
	}
	return fmt.Errorf("%w: docker daemon at %s: %s: %w", env.ErrInfrastructure, c.host, operation, err)
}
