package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"deepswe/env"
)

// podWatch knows the state of our pods in a cluster.
type podWatch struct {
	c        *cluster
	mu       sync.Mutex
	followed map[string]*watched
	freed    chan struct{} // closed and replaced when one of our pods is gone
	ended    time.Time     // when the last one that had a node was gone
}

// watched is one of our pods, kept up to date by the watch.
type watched struct {
	created bool // the server confirmed its creation
	pod     *pod // its last known state; nil before the first
	gone    bool
	change  chan struct{} // closed and replaced at every change
}

// register adds a pod to the watch. It must be called before the pod is created.
func (pw *podWatch) register(name string) *watched {
	w := &watched{change: make(chan struct{})}
	pw.mu.Lock()
	defer pw.mu.Unlock()
	pw.followed[name] = w
	return w
}

func (pw *podWatch) unregister(name string) {
	pw.mu.Lock()
	defer pw.mu.Unlock()
	if w := pw.followed[name]; w != nil && w.pod != nil && w.pod.Spec.NodeName != "" {
		pw.ended = time.Now()
	}
	delete(pw.followed, name)
	close(pw.freed)
	pw.freed = make(chan struct{})
}

// placed counts our pods that have been scheduled to a node.
func (pw *podWatch) placed() int {
	pw.mu.Lock()
	defer pw.mu.Unlock()
	n := 0
	for _, w := range pw.followed {
		if w.pod != nil && w.pod.Spec.NodeName != "" && !w.gone {
			n++
		}
	}
	return n
}

// look returns a pod's last known state, and a channel that is closed when it changes.
func (pw *podWatch) look(w *watched) (p *pod, gone bool, change <-chan struct{}) {
	pw.mu.Lock()
	defer pw.mu.Unlock()
	return w.pod, w.gone, w.change
}

// saw records a pod's new state, or nil when the pod is gone.
func (pw *podWatch) saw(name string, p *pod) {
	pw.mu.Lock()
	defer pw.mu.Unlock()
	w := pw.followed[name]
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

// run keeps the state of all our pods up to date with one list and one watch.
func (pw *podWatch) run() {
	for failures := 0; pw.c.life.Err() == nil; {
		began := time.Now()
		err := pw.runOnce()
		if pw.c.life.Err() != nil {
			return
		}
		if err == nil || time.Since(began) > time.Minute {
			failures = 0
		} else {
			failures++
			pw.c.log.Debug("the watch ended", "cluster", pw.c.where(), "error", err)
		}
		_ = env.Sleep(pw.c.life, jitter(env.Backoff(failures+1, 100*time.Millisecond, retryLongest)))
	}
}

// runOnce lists the pods and then watches them until the server cannot continue the watch.
func (pw *podWatch) runOnce() error {
	pw.mu.Lock()
	expected := map[string]*watched{}
	for name, w := range pw.followed {
		if w.created {
			expected[name] = w
		}
	}
	pw.mu.Unlock()
	list, version, err := pw.c.listPods(pw.c.life, labelOwner+"="+pw.c.owner)
	if err != nil {
		return err
	}
	for i := range list {
		pw.saw(list[i].Metadata.Name, &list[i])
		delete(expected, list[i].Metadata.Name)
	}
	for name := range expected {
		pw.saw(name, nil)
	}
	for failures := 0; pw.c.life.Err() == nil; {
		began := time.Now()
		version, err = pw.changes(version)
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
		_ = env.Sleep(pw.c.life, jitter(env.Backoff(failures, retryFirst, retryLongest)))
	}
	return nil
}

// errExpired reports that the server no longer has the version from which a watch was to continue.
var errExpired = errors.New("the resource version is too old")

// changes follows the changes since a version, until the server ends the stream, and returns the last version it has
// seen.
func (pw *podWatch) changes(version string) (string, error) {
	const longest = 5 * time.Minute
	seconds := int((longest - rand.N(time.Minute)) / time.Second)
	ctx, cancel := context.WithTimeout(pw.c.life, longest+requestTimeout)
	defer cancel()
	answer, err := pw.c.send(ctx, request{method: http.MethodGet, path: pw.c.pods(), query: url.Values{
		"watch": {"true"}, "labelSelector": {labelOwner + "=" + pw.c.owner}, "resourceVersion": {version},
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
			pw.saw(p.Metadata.Name, p)
		case "DELETED":
			pw.saw(p.Metadata.Name, p)
			pw.saw(p.Metadata.Name, nil)
		}
	}
}
