package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"deepswe/env"
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
	followed     map[string]*watched
	freed        chan struct{} // closed and replaced when one of our pods is gone
	ended        time.Time     // when the last one that had a node was gone
	originals    map[string]*original
	learnt       time.Duration // estimated time from a pod's scheduling to a working guest
}

// podID tells a pod from a later one of the same name.
type podID struct{ name, uid string }

// watched is one of our pods, kept up to date by the watch.
type watched struct {
	created bool // the server confirmed its creation
	pod     *pod // its last known state; nil before the first
	gone    bool
	change  chan struct{} // closed and replaced at every change
}

func newCluster(context, namespace string) *cluster {
	return &cluster{
		context: context, namespace: namespace, requests: make(chan struct{}, requestsAtOnce),
		starts: make(chan struct{}, startsAtOnce), dials: rate.NewLimiter(dialsPerSecond, 1), followed: map[string]*watched{},
		freed: make(chan struct{}), originals: map[string]*original{},
		permitted: map[string]bool{}, log: slog.New(slog.DiscardHandler), roomWait: roomWait,
	}
}

// where names the cluster in messages.
func (c *cluster) where() string { return c.context + ", namespace " + c.namespace }

// now returns the server's time, as far as it is known.
func (c *cluster) now() time.Time { return time.Now().Add(time.Duration(c.skew.Load())) }

// beginWork starts the provider's background work in this cluster.
func (c *cluster) beginWork() {
	c.begun.Do(func() {
		c.work.Go(c.follow)
		c.work.Go(c.keepLease)
	})
}

// register adds a pod to the watch. It must be called before the pod is created.
func (c *cluster) register(name string) *watched {
	w := &watched{change: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followed[name] = w
	return w
}

func (c *cluster) unregister(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.followed[name]; w != nil && w.pod != nil && w.pod.Spec.NodeName != "" {
		c.ended = time.Now()
	}
	delete(c.followed, name)
	close(c.freed)
	c.freed = make(chan struct{})
}

// placed counts our pods that have been scheduled to a node.
func (c *cluster) placed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, w := range c.followed {
		if w.pod != nil && w.pod.Spec.NodeName != "" && !w.gone {
			n++
		}
	}
	return n
}

// look returns a pod's last known state, and a channel that is closed when it changes.
func (c *cluster) look(w *watched) (p *pod, gone bool, change <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.pod, w.gone, w.change
}

// saw records a pod's new state, or nil when the pod is gone.
func (c *cluster) saw(name string, p *pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.followed[name]
	if w == nil {
		return
	}
	if p == nil {
		w.gone = true
	} else {
		w.pod = p
	}
	close(w.change)
	w.change = make(chan struct{})
}

// follow keeps the state of all our pods up to date with one list and one watch.
func (c *cluster) follow() {
	for failures := 0; c.life.Err() == nil; {
		began := time.Now()
		err := c.followOnce()
		if c.life.Err() != nil {
			return
		}
		if err == nil || time.Since(began) > time.Minute {
			failures = 0
		} else {
			failures++
			c.log.Debug("the watch ended", "cluster", c.where(), "error", err)
		}
		_ = env.Sleep(c.life, jitter(env.Backoff(failures+1, 100*time.Millisecond, retryLongest)))
	}
}

// followOnce lists the pods and then watches them until the server cannot continue the watch.
func (c *cluster) followOnce() error {
	c.mu.Lock()
	expected := map[string]*watched{}
	for name, w := range c.followed {
		if w.created {
			expected[name] = w
		}
	}
	c.mu.Unlock()
	list, version, err := c.listPods(c.life, labelOwner+"="+c.owner)
	if err != nil {
		return err
	}
	for i := range list {
		c.saw(list[i].Metadata.Name, &list[i])
		delete(expected, list[i].Metadata.Name)
	}
	for name := range expected {
		c.saw(name, nil)
	}
	for failures := 0; c.life.Err() == nil; {
		began := time.Now()
		version, err = c.watch(version)
		if errors.Is(err, errExpired) {
			return nil
		}
		if err == nil || time.Since(began) > time.Minute {
			failures = 0
			continue
		}
		if failures++; failures > 5 {
			return err
		}
		_ = env.Sleep(c.life, jitter(env.Backoff(failures, retryFirst, retryLongest)))
	}
	return nil
}

// errExpired reports that the server no longer has the version from which a watch was to continue.
var errExpired = errors.New("the resource version is too old")

// watch follows the changes since a version, until the server ends the stream, and returns the last version it has
// seen.
func (c *cluster) watch(version string) (string, error) {
	const longest = 5 * time.Minute
	seconds := int((longest - rand.N(time.Minute)) / time.Second)
	ctx, cancel := context.WithTimeout(c.life, longest+requestTimeout)
	defer cancel()
	answer, err := c.send(ctx, request{method: http.MethodGet, path: c.pods(), query: url.Values{
		"watch": {"true"}, "labelSelector": {labelOwner + "=" + c.owner}, "resourceVersion": {version},
		"allowWatchBookmarks": {"true"}, "timeoutSeconds": {fmt.Sprint(seconds)},
	}})
	if err != nil {
		return version, err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusGone {
		return version, errExpired
	}
	if answer.StatusCode >= 300 {
		wait, err := retryAfter(answer), readStatus(answer)
		_ = env.Sleep(ctx, wait)
		return version, err
	}
	for stream := json.NewDecoder(answer.Body); ; {
		var e watchEvent
		if err := stream.Decode(&e); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return version, err
		}
		if e.Type == "ERROR" {
			refusal := &statusError{}
			if json.Unmarshal(e.Object, refusal) == nil && refusal.Code == http.StatusGone {
				return version, errExpired
			}
			return version, refusal
		}
		p := &pod{}
		if err := json.Unmarshal(e.Object, p); err != nil {
			return version, err
		}
		version = p.Metadata.ResourceVersion
		switch e.Type {
		case "ADDED", "MODIFIED":
			c.saw(p.Metadata.Name, p)
		case "DELETED":
			c.saw(p.Metadata.Name, p)
			c.saw(p.Metadata.Name, nil)
		}
	}
}

// dialsPerSecond limits the attempts to reach guests that may not run yet.
const dialsPerSecond = 60
