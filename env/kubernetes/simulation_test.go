package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"k8s.io/client-go/rest"

	"deepswe/env/guest"
	"deepswe/env/testkit"
)

// simulation is an API server that is as slow as a real one and sometimes fails. Its pods run only the guest's side of
// the protocol.
type simulation struct {
	ctx   context.Context //nolint:containedctx // of the test
	build string          // of the guest

	mu      sync.Mutex
	pods    map[string]*simulated
	version int
	events  []simulatedEvent
	changed chan struct{}
	foreign map[string]lease // of owners on other machines, by name

	requests, dials, early, faults, lists atomic.Int64
	pulled                                atomic.Int64 // pods that only pull an image
	tidied                                atomic.Int64 // guests that were asked to end what commands have left
	faulty                                atomic.Bool
	quota                                 atomic.Int64 // the most pods; 0: no limit
	cutAfter, cuts                        atomic.Int64 // bytes after which a stream "succeeds" (0: never); how many did
	unpacked                              atomic.Value // the hash of what was unpacked last, in hex
	token                                 atomic.Value // a string: the only token that is valid; nil if all are
}

type simulated struct {
	pod   pod
	ready time.Time
	line  *guest.Line
}

type simulatedEvent struct {
	version int
	kind    string
	pod     pod
}

func simulate(t *testing.T) (*simulation, *rest.Config) {
	s := &simulation{
		ctx: t.Context(), pods: map[string]*simulated{}, changed: make(chan struct{}), foreign: map[string]lease{},
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, &rest.Config{Host: server.URL, BearerToken: "x"}
}

func (s *simulation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	time.Sleep(time.Millisecond + rand.N(4*time.Millisecond))
	if s.faulty.Load() && rand.IntN(20) == 0 {
		s.faults.Add(1)
		switch rand.IntN(3) {
		case 0:
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusTooManyRequests, "too many requests")
		case 1:
			refuse(w, http.StatusForbidden, `pods is forbidden: User "x" cannot do that`) // as after a restart
		default:
			refuse(w, http.StatusInternalServerError, "etcdserver: request timed out")
		}
		return
	}
	if token, ok := s.token.Load().(string); ok && r.Header.Get("Authorization") != "Bearer "+token {
		refuse(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	const base = "/api/v1/namespaces/default/pods"
	name, exec := strings.CutSuffix(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, base), "/"), "/exec")
	switch {
	case r.URL.Path == "/version":
		answer(w, versionInfo{Major: "1", Minor: "34", GitVersion: "v1.34.4"})
	case strings.Contains(r.URL.Path, "/leases"):
		s.lease(w, r)
	case exec:
		s.exec(w, r, name)
	case r.Method == http.MethodPost:
		s.create(w, r)
	case r.Method == http.MethodDelete:
		s.remove(w, name)
	case r.URL.Query().Has("watch"):
		s.watch(w, r)
	case name == "":
		s.list(w)
	default:
		s.get(w, name)
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(statusError{Status: "Failure", Code: code, Message: message})
}

func (s *simulation) lease(w http.ResponseWriter, r *http.Request) {
	var l lease
	switch r.Method {
	case http.MethodPost, http.MethodPut:
		if err := json.NewDecoder(r.Body).Decode(&l); err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		l.Metadata.UID, l.Metadata.ResourceVersion = "lease", "1"
		answer(w, l)
	case http.MethodGet:
		s.mu.Lock()
		defer s.mu.Unlock()
		answer(w, leaseList{Items: slices.Collect(maps.Values(s.foreign))})
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.foreign, path.Base(r.URL.Path))
		answer(w, statusError{Status: "Success"})
	}
}

// change records an event. The caller holds mu.
func (s *simulation) change(kind string, p pod) {
	s.version++
	p.Metadata.ResourceVersion = fmt.Sprint(s.version)
	s.events = append(s.events, simulatedEvent{s.version, kind, p})
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *simulation) create(w http.ResponseWriter, r *http.Request) {
	p := &simulated{line: guest.AcceptLine()}
	if err := json.NewDecoder(r.Body).Decode(&p.pod); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	p.pod.Metadata.UID = p.pod.Metadata.Name
	p.pod.Status = &podStatus{Phase: "Pending"}
	s.mu.Lock()
	if most, used := int(s.quota.Load()), len(s.pods); most > 0 && used >= most {
		s.mu.Unlock()
		_ = p.line.Close()
		refuse(w, http.StatusForbidden, fmt.Sprintf("pods is forbidden: exceeded quota: q, requested: pods=1, "+
			"used: pods=%d, limited: pods=%d", used, most))
		return
	}
	s.pods[p.pod.Metadata.Name] = p
	s.change("ADDED", p.pod)
	placed := p.pod
	placed.Spec.NodeName = "node"
	p.pod = placed
	p.ready = time.Now().Add(300*time.Millisecond + rand.N(400*time.Millisecond))
	s.change("MODIFIED", placed)
	s.mu.Unlock()
	if placed.Metadata.Labels[labelKind] == kindPull {
		s.pulled.Add(1)
		time.AfterFunc(50*time.Millisecond, func() { s.end(placed.Metadata.Name) })
	}
	go s.serve(p.line)
	answer(w, placed)
}

// end ends a pod that has nothing to do, unless its image cannot be pulled.
func (s *simulation) end(name string) {
	status := &podStatus{Phase: "Succeeded"}
	said := `[{"name": "sandbox", "state": {"terminated": {"exitCode": 0}}}]`
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[name]
	if p == nil {
		return
	}
	if p.pod.imageOf(mainContainer) == "missing" {
		status.Phase = "Pending"
		said = `[{"name": "sandbox", "state": {"waiting": {"reason": "ErrImagePull", "message": "missing: not found"}}}]`
	}
	_ = json.Unmarshal([]byte(said), &status.ContainerStatuses)
	p.pod.Status = status
	s.change("MODIFIED", p.pod)
}

// serve answers as the guest of a pod, until its host hangs up.
func (s *simulation) serve(line *guest.Line) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	server := guest.NewServer(ctx, line, func(c *guest.Call) {
		switch c.Request.(type) {
		case *guest.PingCall:
			c.Answer(nil, nil)
		case *guest.TidyCall:
			s.tidied.Add(1)
			c.Answer(nil, nil)
		case *guest.UnpackCall:
			go func() { c.Answer(nil, s.unpack(c.Body())) }()
		default:
			c.Answer(nil, errors.New("not simulated"))
		}
	})
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = server.Write()
	}()
	if server.Greet(guest.Hello{Build: s.build, Dir: "/", Silence: silence}) == nil {
		_ = server.Read(line)
	}
	server.Stop()
	line.Fail(io.EOF)
	<-written
	_ = line.Close()
}

// unpack records the hash of what has arrived.
func (s *simulation) unpack(from io.Reader) error {
	sum := sha256.New()
	if _, err := io.Copy(sum, from); err != nil {
		return err
	}
	s.unpacked.Store(hex.EncodeToString(sum.Sum(nil)))
	return nil
}

func (s *simulation) remove(w http.ResponseWriter, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[name]
	if p == nil {
		refuse(w, http.StatusNotFound, "not found")
		return
	}
	delete(s.pods, name)
	p.line.Fail(io.EOF)
	s.change("DELETED", p.pod)
	answer(w, p.pod)
}

func (s *simulation) get(w http.ResponseWriter, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[name]
	if p == nil {
		refuse(w, http.StatusNotFound, "not found")
		return
	}
	answer(w, p.pod)
}

func (s *simulation) list(w http.ResponseWriter) {
	s.lists.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	var list podList
	list.Metadata.ResourceVersion = fmt.Sprint(s.version)
	for _, p := range s.pods {
		list.Items = append(list.Items, p.pod)
	}
	answer(w, list)
}

// watch sends the changes since a version. With faults, it ends after a while, as with a proxy, or has forgotten the
// version.
func (s *simulation) watch(w http.ResponseWriter, r *http.Request) {
	var since int
	_, _ = fmt.Sscan(r.URL.Query().Get("resourceVersion"), &since)
	if s.faulty.Load() && rand.IntN(4) == 0 {
		refuse(w, http.StatusGone, "too old")
		return
	}
	ends := time.After(24 * time.Hour)
	if s.faulty.Load() {
		ends = time.After(500*time.Millisecond + rand.N(time.Second))
	}
	encoder := json.NewEncoder(w)
	for {
		s.mu.Lock()
		var fresh []simulatedEvent
		for i := len(s.events) - 1; i >= 0 && s.events[i].version > since; i-- {
			fresh = append(fresh, s.events[i])
		}
		changed := s.changed
		s.mu.Unlock()
		for i := len(fresh) - 1; i >= 0; i-- {
			object, _ := json.Marshal(fresh[i].pod)
			if encoder.Encode(watchEvent{fresh[i].kind, object}) != nil {
				return
			}
			since = fresh[i].version
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-ends:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *simulation) exec(w http.ResponseWriter, r *http.Request, name string) {
	s.dials.Add(1)
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{streamProtocol}})
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(-1)
	s.mu.Lock()
	p := s.pods[name]
	s.mu.Unlock()
	if p == nil || time.Now().Before(p.ready) {
		s.early.Add(1)
		said, _ := json.Marshal(statusError{Status: "Failure", Code: 500, Message: "container not found"})
		_ = conn.Write(r.Context(), websocket.MessageBinary, append([]byte{channelStatus}, said...))
		return
	}
	lost, err := p.line.Attach(&inPod{conn: conn, ctx: r.Context(), cut: s.cutAfter.Load()})
	if err != nil {
		return
	}
	if s.faulty.Load() && rand.IntN(4) == 0 {
		select {
		case <-time.After(rand.N(time.Second)): // the stream breaks
		case <-lost:
		}
		return
	}
	select {
	case err := <-lost:
		if errors.Is(err, errCut) {
			s.cuts.Add(1)
			_ = conn.Write(r.Context(), websocket.MessageBinary, append([]byte{channelStatus}, `{"status":"Success"}`...))
		}
	case <-r.Context().Done():
	}
}

// inPod is the pod's side of a stream.
type inPod struct {
	conn *websocket.Conn
	ctx  context.Context //nolint:containedctx // of the request that the stream is
	rest []byte
	cut  int64 // how many more bytes arrive before the connection to the node is lost; 0: no limit
}

var errCut = errors.New("the API server's connection to the node was lost")

func (p *inPod) Read(to []byte) (int, error) {
	for len(p.rest) == 0 {
		_, message, err := p.conn.Read(p.ctx)
		if err != nil {
			return 0, err
		}
		p.rest = message[1:]
		if size := int64(len(p.rest)); p.cut > 0 {
			if p.cut -= size; p.cut <= 0 {
				return 0, errCut
			}
		}
	}
	n := copy(to, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func (p *inPod) Write(from []byte) (int, error) {
	err := p.conn.Write(p.ctx, websocket.MessageBinary, append([]byte{channelStdout}, from...))
	return len(from), err
}

// Close does not close the connection: exec first sends how the stream ended.
func (p *inPod) Close() error { return nil }

// onSimulation opens a provider on a simulated API server.
func onSimulation(t *testing.T) (*simulation, *Provider) {
	t.Helper()
	s, config := simulate(t)
	p, err := New(t.Context(), Options{
		config: config, Namespaces: []string{"default"}, Executable: testkit.Guest(t), Pods: Pods{GuestImage: "guest"},
	})
	if err != nil {
		t.Fatal(err)
	}
	binary, err := p.clusters[0].guests.find()
	if err != nil {
		t.Fatal(err)
	}
	s.build = binary.Hash
	return s, p
}
