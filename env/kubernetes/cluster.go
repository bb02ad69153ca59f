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

	"deepswe/env"
)

// cluster is one namespace of one cluster, and what this provider has in it.
type cluster struct {
	context, namespace string
	options            Options
	log                *slog.Logger
	owner, hostname    string
	life               context.Context // ends with the provider
	work               *sync.WaitGroup // counts background work
	guests             *guests
	inside             bool // this process runs in a pod of the cluster

	base *url.URL
	// http is for requests, upgrade opens streams.
	http, upgrade *http.Client
	requests      chan struct{} // one token for each request under way
	starts        chan struct{} // one for each pod that is being started
	dials         *pace         // of streams that may be too early

	allowed atomic.Bool  // the server has granted a request
	skew    atomic.Int64 // how far the server's clock is ahead, in nanoseconds

	begun   sync.Once
	tidied  sync.Once
	leasing sync.Mutex // held while the lease is made

	mu        sync.Mutex
	mode      mode
	refusal   error // of the network, which is not tried again soon
	refusedAt time.Time
	lease     *lease // nil until it is there
	followed  map[string]*watched
	freed     chan struct{} // closed and replaced when a pod of ours is gone
	orphans   map[string]string
	originals map[string]*original
	learnt    time.Duration // how long pods took from their node to their guest
}

// watched is a pod of ours that the watch follows.
type watched struct {
	created bool // the server has said so, before the list that is being compared with
	pod     *pod // as last seen; nil before that
	gone    bool
	change  chan struct{} // closed and replaced with every change
}

func newCluster(context, namespace string) *cluster {
	return &cluster{
		context: context, namespace: namespace, requests: make(chan struct{}, requestsAtOnce),
		starts: make(chan struct{}, startsAtOnce), dials: newPace(dialsPerSecond), followed: map[string]*watched{},
		freed: make(chan struct{}), orphans: map[string]string{}, originals: map[string]*original{},
	}
}

// where names the cluster for people.
func (c *cluster) where() string { return c.context + ", namespace " + c.namespace }

// now is the server's time, as far as it is known.
func (c *cluster) now() time.Time { return time.Now().Add(time.Duration(c.skew.Load())) }

// begin starts what goes on for as long as the provider lives.
func (c *cluster) begin() {
	c.begun.Do(func() {
		c.work.Go(c.follow)
		c.work.Go(c.keepLease)
	})
}

// register lets the watch follow a pod. It is called before the pod is created.
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
	delete(c.followed, name)
	close(c.freed)
	c.freed = make(chan struct{})
}

// placed counts our pods that have a node.
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

// look returns what is known of a pod, and a channel that is closed when that changes.
func (c *cluster) look(w *watched) (p *pod, gone bool, change <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.pod, w.gone, w.change
}

// saw takes a new state of a pod; nil when it is gone.
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

// follow keeps the state of our pods up to date: one list, then one watch, for all of them.
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

// followOnce lists the pods, and then watches them until the server cannot go on from where it was.
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

// errExpired says that the server has forgotten the version from which a watch was to go on.
var errExpired = errors.New("the version is too old")

// watch follows the changes since a version, until the server ends the stream. It returns the version that it came to.
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

// dialsPerSecond bounds the attempts to reach guests that may not run yet.
const dialsPerSecond = 60

// pace lets a number of things happen each second.
type pace struct {
	mu    sync.Mutex
	every time.Duration
	next  time.Time
}

func newPace(perSecond int) *pace { return &pace{every: time.Second / time.Duration(perSecond)} }

// wait waits for a turn.
func (p *pace) wait(ctx context.Context) error {
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	at := p.next
	p.next = p.next.Add(p.every)
	p.mu.Unlock()
	if at.Equal(now) {
		return ctx.Err()
	}
	return env.Sleep(ctx, at.Sub(now))
}
