package kubernetes

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"deepswe/env/fleet"
)

// cluster is one namespace of one cluster, with this provider's pods in it.
type cluster struct {
	context, namespace string
	options            Options
	log                *slog.Logger
	owner, hostname    string
	life               context.Context // ends when the provider is closed
	work               *sync.WaitGroup // counts background work
	guests             *guests
	inside             bool // this process runs in a pod of the cluster

	base *url.URL
	// http sends requests; upgrade opens streams.
	http, upgrade *http.Client
	requests      chan struct{} // a semaphore of requestsAtOnce
	starts        chan struct{} // a semaphore of startsAtOnce
	dials         *rate.Limiter // limits attempts to reach guests that may not run yet

	queue    queue     // starts that wait for room
	full     sync.Once // tells the user that there is none
	roomWait time.Duration
	shed     func(ctx context.Context) // removes a sandbox that was started ahead of time, if there is one

	allowed atomic.Bool  // whether the server has allowed a request before
	skew    atomic.Int64 // how far the server's clock is ahead, in nanoseconds

	watch   podWatch
	pulled  pulls
	orphans fleet.Orphans[podID]

	begun   sync.Once
	tidied  sync.Once
	leasing sync.Mutex // held while the lease is created

	mu        sync.Mutex
	mode      mode
	permitted map[string]bool // the rights of requests that the server has allowed
	// refusedSince is since when the server refuses credentials that it accepted before; zero if it does not. noted is
	// set once that was said.
	refusedSince time.Time
	noted        bool
	refusal      error // the last error of a network that could not be closed
	refusedAt    time.Time
	lease        *lease // nil until it is created
	originals    map[string]*original
	learnt       time.Duration // estimated time from a pod's scheduling to a working guest
}

// podID tells a pod from a later one of the same name.
type podID struct{ name, uid string }

func newCluster(context, namespace string) *cluster {
	c := &cluster{
		context: context, namespace: namespace, requests: make(chan struct{}, requestsAtOnce),
		starts: make(chan struct{}, startsAtOnce), dials: rate.NewLimiter(dialsPerSecond, 1),
		originals: map[string]*original{}, permitted: map[string]bool{},
		log: slog.New(slog.DiscardHandler), roomWait: roomWait,
	}
	c.watch = podWatch{c: c, followed: map[string]*watched{}, freed: make(chan struct{})}
	return c
}

// where names the cluster in messages.
func (c *cluster) where() string { return c.context + ", namespace " + c.namespace }

// now returns the server's time, as far as it is known.
func (c *cluster) now() time.Time { return time.Now().Add(time.Duration(c.skew.Load())) }

// beginWork starts the provider's background work in this cluster.
func (c *cluster) beginWork() {
	c.begun.Do(func() {
		c.work.Go(c.watch.run)
		c.work.Go(c.keepLease)
	})
}

// dialsPerSecond limits the attempts to reach guests that may not run yet.
const dialsPerSecond = 60
