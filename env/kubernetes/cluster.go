package kubernetes

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"deepswe/env/fleet"
)

// cluster is one namespace of one cluster, with this provider's pods in it.
type cluster struct {
	*server
	options         Options
	owner, hostname string
	life            context.Context // ends when the provider is closed
	work            *sync.WaitGroup // counts background work
	guests          *guests
	inside          bool // this process runs in a pod of the cluster

	starts chan struct{} // a semaphore of startsAtOnce
	dials  *rate.Limiter // limits attempts to reach guests that may not run yet

	queue    queue     // starts that wait for room
	full     sync.Once // tells the user that there is none
	roomWait time.Duration
	shed     func(ctx context.Context) // removes a sandbox that was started ahead of time, if there is one

	watch     podWatch
	pulled    pulls
	orphans   fleet.Orphans[podID]
	lease     leaseholder
	originals originals
	begun     sync.Once

	mu        sync.Mutex
	mode      mode
	refusal   error // the last error of a network that could not be closed
	refusedAt time.Time
	learnt    time.Duration // estimated time from a pod's scheduling to a working guest
}

// podID tells a pod from a later one of the same name.
type podID struct{ name, uid string }

func newCluster(context, namespace string) *cluster {
	c := &cluster{
		server: &server{
			context: context, namespace: namespace, requests: make(chan struct{}, requestsAtOnce),
			permitted: map[string]bool{}, log: slog.New(slog.DiscardHandler),
		},
		starts: make(chan struct{}, startsAtOnce), dials: rate.NewLimiter(dialsPerSecond, 1), roomWait: roomWait,
	}
	c.lease.c, c.originals.all = c, map[string]*original{}
	c.watch = podWatch{c: c, followed: map[string]*watched{}, freed: make(chan struct{})}
	return c
}

// where names the cluster in messages.
func (s *server) where() string { return s.context + ", namespace " + s.namespace }

// now returns the server's time, as far as it is known.
func (s *server) now() time.Time { return time.Now().Add(time.Duration(s.skew.Load())) }

// beginWork starts the provider's background work in this cluster.
func (c *cluster) beginWork() {
	c.begun.Do(func() {
		c.work.Go(c.watch.run)
		c.work.Go(c.keepLease)
	})
}

// dialsPerSecond limits the attempts to reach guests that may not run yet.
const dialsPerSecond = 60
