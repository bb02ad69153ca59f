package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"deepswe/env"
	"deepswe/env/fleet"
	"deepswe/env/repo"
)

// name is the value of --env.
const name = "kubernetes"

// Provider starts sandboxes as pods, in one or several namespaces and clusters.
type Provider struct {
	options  Options
	log      *slog.Logger
	clusters []*cluster
	fleet    fleet.Fleet[*cluster, *Sandbox]

	// life ends at Close, and with it the background work, which work counts.
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup
}

var (
	_ env.Provider  = (*Provider)(nil)
	_ env.Diagnoser = (*Provider)(nil)
)

// New connects to the clusters. If some cannot be used, it logs that and leaves them out; if none can be used, it
// fails.
func New(ctx context.Context, o Options) (*Provider, error) {
	p := &Provider{options: o, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler))}
	p.life, p.end = context.WithCancel(context.WithoutCancel(ctx))
	failures := p.open(ctx)
	if err := ctx.Err(); err != nil {
		p.end()
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	if len(p.clusters) == 0 {
		p.end()
		return nil, errors.Join(failures...)
	}
	for _, err := range failures {
		p.log.Warn("kubernetes cluster cannot be used", "error", err)
	}
	p.fleet = fleet.Fleet[*cluster, *Sandbox]{
		Places: p.clusters, Warm: o.Warm, Log: p.log, Life: p.life, Work: &p.work,
	}
	return p, nil
}

// open connects to the clusters that the options select: each namespace in each context. It returns the errors of those
// that cannot be used.
func (p *Provider) open(ctx context.Context) (failures []error) {
	whose := strings.ReplaceAll(fleet.This().String(), "/", ".") + "." + fleet.Nonce()
	hostname, _ := os.Hostname()
	programs := &guests{executable: p.options.Executable}
	for _, kubeContext := range orNone(p.options.Contexts) {
		for _, namespace := range orNone(p.options.Namespaces) {
			c, err := connect(p.options, kubeContext, namespace)
			if err == nil {
				c.options, c.log, c.life, c.work, c.guests = p.options, p.log, p.life, &p.work, programs
				c.owner, c.hostname, c.shed = whose, hostname, p.fleet.Shed
				err = p.greet(ctx, c)
			}
			if err != nil {
				failures = append(failures, err)
				continue
			}
			p.clusters = append(p.clusters, c)
		}
	}
	return failures
}

// orNone returns list, or a list of one empty string if it is empty.
func orNone(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

// oldestMinor is the minor version of the first Kubernetes release whose exec supports streamProtocol.
const oldestMinor = 30

// greet checks that a cluster answers and is not too old.
func (p *Provider) greet(ctx context.Context, c *cluster) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	v, err := c.version(ctx)
	if err != nil {
		return c.unreachable(err)
	}
	if minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+")); err == nil && v.Major == "1" && minor < oldestMinor {
		return &accessError{c.where(), "it is too old: " + v.GitVersion, fmt.Sprintf("upgrade it to 1.%d", oldestMinor), nil}
	}
	return nil
}

func (s *server) version(ctx context.Context) (v versionInfo, err error) {
	return v, s.call(ctx, request{method: http.MethodGet, path: "/version", into: &v, once: true})
}

// Name returns "kubernetes", the value of --env.
func (p *Provider) Name() string { return name }

// Capabilities returns what a successful Start guarantees: if the network cannot be closed, Start fails. Pods have
// no process limit of their own, so there is one only if Pods.ProcessLimit says that the nodes enforce it.
func (p *Provider) Capabilities() env.Capabilities {
	return env.Capabilities{
		Images: true, Isolated: true, NetworkOff: true, MemoryLimit: true, CPULimit: true, DiskLimit: true,
		ProcessLimit: p.options.Pods.ProcessLimit,
	}
}

// Start returns a warm sandbox, or starts one in the cluster with the fewest pods.
func (p *Provider) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	s, err := p.accept(s)
	if err != nil {
		return nil, err
	}
	return repo.StartAt(ctx, s, func(s env.Spec) (env.Sandbox, error) {
		sandbox, err := p.fleet.Start(ctx, s)
		if err != nil {
			return nil, err
		}
		if err := sandbox.copyAndPrepare(ctx); err != nil {
			return nil, errors.Join(sandbox.c.failed(ctx, err), sandbox.Close(ctx))
		}
		return sandbox, nil
	})
}

// Load returns how many of our pods a cluster has. Those that are being started may count twice.
func (c *cluster) Load(_ env.Spec, coming int) float64 {
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	return float64(len(c.watch.followed) + coming)
}

// Launch starts a pod.
func (c *cluster) Launch(ctx context.Context, s env.Spec, ahead bool) (*Sandbox, error) {
	rank := rankOf(s)
	if ahead {
		rank = rankAhead
	}
	return c.start(ctx, kindSandbox, s, rank, nil)
}

// accept fills in a spec's defaults, and returns an error if it asks for something unsupported.
func (p *Provider) accept(s env.Spec) (env.Spec, error) {
	switch {
	case s.Fills():
		return s, fmt.Errorf("%w: pods cannot fill folders of this machine: use --env bwrap", env.ErrUnsupported)
	case s.Image == "" && s.Dockerfile != "":
		return s, fmt.Errorf("%w: a cluster cannot build images: build %s, push it to a registry that the cluster "+
			"pulls from, and name it with --image", env.ErrUnsupported, s.Dockerfile)
	case s.Image == "":
		return s, fmt.Errorf("%w: a kubernetes sandbox requires --image (--env bwrap does not)", env.ErrUnsupported)
	}
	s.Dockerfile = ""
	s.Dir = cmp.Or(s.Dir, "/testbed")
	s, err := s.CheckedForImage()
	if err != nil {
		return s, err
	}
	if p.life.Err() != nil {
		return s, fmt.Errorf("%w: the kubernetes provider is closed", env.ErrInfrastructure)
	}
	return s, nil
}

// Prefetch makes a node pull the spec's image and, if fewer than Options.Warm are waiting, starts a sandbox.
func (p *Provider) Prefetch(ctx context.Context, s env.Spec) error {
	s, err := p.accept(s)
	if err != nil {
		return err
	}
	return p.fleet.Prefetch(ctx, s)
}

// Close removes the provider's own objects: warm sandboxes, pods for original files, and leases.
func (p *Provider) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := p.fleet.Close(ctx)
	for _, c := range p.clusters {
		err = errors.Join(err, c.originals.close(ctx))
	}
	p.end()
	p.work.Wait()
	for _, c := range p.clusters {
		c.retryOrphans(ctx)
		err = errors.Join(err, c.lease.drop(ctx), c.left())
		c.discard()
	}
	return err
}

// left returns an error that counts the pods that could not be deleted, and says how to remove them.
func (c *cluster) left() error {
	n := c.orphans.Len()
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: pods that could not be deleted: %d; to fix: deepswe clean --kube-context %s "+
		"--kube-namespace %s, as soon as kubectl can delete pods there", env.ErrInfrastructure, c.where(), n, c.context,
		c.namespace)
}
