// Package trainertest has a Tinker server for tests, which behaves like recordings of SkyRL's: its queue and long
// polls, its errors, the invalid input that it accepts, and faults on demand. Its models are embedded policies, so that
// a whole run can learn with it. The tests of package tinker check everything that a client and a server must agree on,
// for this server and for a real one.
package trainertest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepswe/rl"
	"deepswe/rl/trainer/embedded"
)

// Options describe a server. Language has no default.
type Options struct {
	Language embedded.Language
	// Speech makes the server use the ids of another tokenizer; nil means those of the language.
	Speech *Speech
	Hidden int    // [16]
	Base   string // name of the model that it trains [tiny]
	// Sums makes the server sum gradients, as GPU backends and hosted servers do; without it, it averages them, as
	// SkyRL's JAX backend does.
	Sums bool
	// Dedups recognises a request that is sent twice, as SkyRL 0.4.0 does and 0.3.0 does not.
	Dedups bool
	// TuFT makes it behave as TuFT's server does. Operations on a model must have consecutive sequence numbers, and only
	// the number of an operation that has just failed may be skipped. A failed operation is reported with status 422,
	// adapters are local files, and unloading a model deletes its checkpoints.
	TuFT bool
	// Dir has the checkpoints, and those of the server before it that had this directory [a temporary one].
	Dir string
	// LoRASync is the directory to which the server writes the adapters that it samples with. With it, archives contain
	// the merged weights of the whole model, uncompressed. Both are as on SkyRL's GPU backends.
	LoRASync string
	// Whole makes it train all weights (rank 0), and serve the last published ones under the base model's name only, as
	// SkyRL's GPU backends do with separate engines.
	Whole bool
	Wire  Wire
	// Uncompressed makes the server refuse compressed bodies.
	Uncompressed bool
	// Config is added to the answer to client/config.
	Config map[string]any
	// MaxBody is the largest body in bytes that the proxy before it lets through; 0 is no limit.
	MaxBody int
	// MaxModels and MaxRank are its capacity [3, 8].
	MaxModels, MaxRank int
	// Hold is how long a poll is held [100ms].
	Hold time.Duration
	// SessionTimeout unloads the models of sessions without a heartbeat [never].
	SessionTimeout time.Duration
}

// Server is a fake server on a local port. Close ends it.
type Server struct {
	options Options
	dir     string
	port    port
	hung    atomic.Bool // see Hang

	mu      sync.Mutex
	changed *sync.Cond
	http    *http.Server
	serving sync.WaitGroup
	closed  bool

	futures  []*future
	open     []*future // all that have not ended, and others until the engine removes them
	sessions map[string]*session
	models   map[string]*model
	created  map[string]bool        // every model that there was
	left     map[int][]contribution // in the place of a model that was unloaded
	samplers map[string]samplingSession
	latest   string                // the newest of samplers
	saved    map[string]checkpoint // by address
	exports  map[string]checkpoint // for other samplers, by address, including removed ones
	names    map[string]bool       // of checkpoints, by model and name
	repeated map[string]*future    // by model and sequence number
	made     int                   // ids so far
	before   int                   // futures of the servers before this one
	// remembered is the number of futures that the next server takes for used.
	remembered int
	faults     map[string][]Fault
	counts     map[string]int
	passes     map[string]int // by the content type and the encoding of the request
	problems   []string

	engine, restarts sync.WaitGroup
}

type session struct {
	seen time.Time
}

// model is a loaded model.
type model struct {
	policy  *embedded.Trainer
	speech  *Speech
	session string
	rank    int
	place   int // the lowest that was free
	// done is the number of the last operation that ended well, failed that of the one that failed after it.
	done, failed int64
	// gradient has been accumulated since the last step.
	gradient []contribution
	// loaded is the sampling session whose weights were loaded last. Sampling from it again reads the weights that are
	// being trained, and sampling from another one replaces them: SkyRL's JAX backend does that.
	loaded string
	// exported was saved last for samplers elsewhere.
	exported rl.Policy
	loads    bool // a first operation has been seen, so load_weights is refused
}

// contribution is the part of a gradient that a sequence adds.
type contribution struct {
	ids   []int32
	slope []float64
}

type samplingSession struct {
	model  string
	policy rl.Policy
	// stale is set by a fault: the session samples from older weights than those published.
	stale bool
}

type checkpoint struct {
	policy rl.Policy // of a checkpoint for sampling
	owner  *model    // of that policy
	kind   string
	rank   int
}

// New starts a server. Its port stays its own until the test ends.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	o.Hidden, o.Base, o.Hold = cmp.Or(o.Hidden, 16), cmp.Or(o.Base, "tiny"), cmp.Or(o.Hold, 100*time.Millisecond)
	o.MaxModels, o.MaxRank = cmp.Or(o.MaxModels, 3), cmp.Or(o.MaxRank, 8)
	s := &Server{
		options: o, dir: cmp.Or(o.Dir, t.TempDir()), sessions: map[string]*session{}, models: map[string]*model{},
		created:  map[string]bool{},
		left:     map[int][]contribution{},
		samplers: map[string]samplingSession{}, saved: map[string]checkpoint{},
		exports: map[string]checkpoint{}, names: map[string]bool{},
		repeated: map[string]*future{}, faults: map[string][]Fault{}, counts: map[string]int{}, passes: map[string]int{},
	}
	s.changed = sync.NewCond(&s.mu)
	if err := errors.Join(s.recall(), s.Start()); err != nil {
		t.Fatal(err)
	}
	s.engine.Go(s.run)
	t.Cleanup(func() {
		s.restarts.Wait()
		s.Stop()
		s.port.release()
		s.mu.Lock()
		s.closed = true
		s.changed.Broadcast()
		s.mu.Unlock()
		s.engine.Wait()
		for _, p := range s.Problems() {
			t.Error(p)
		}
		for name, unmet := range s.faults {
			if len(unmet) > 0 {
				t.Errorf("%d injected faults of %s were never met", len(unmet), name)
			}
		}
	})
	return s
}

// URL returns the address of the server, also while it is stopped.
func (s *Server) URL() string { return "http://" + s.port.address }

// Base is the model that it trains.
func (s *Server) Base() string { return s.options.Base }

// Vocabulary is the number of ids.
func (s *Server) Vocabulary() int {
	if s.options.Speech != nil {
		return s.options.Speech.Size
	}
	c, err := embedded.NewCodec(s.options.Language.Vocabulary)
	if err != nil {
		panic(err) // New has made policies of it
	}
	return c.Size()
}

// Start lets the server be reached again. Operations that had not ended when it stopped have failed.
func (s *Server) Start() error {
	l, err := s.port.listen()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung.Store(false)
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	h := s.http
	s.serving.Go(func() { _ = h.Serve(l) })
	return nil
}

// Stop kills the server: connections break, and models and running operations are lost. Ended futures, sessions and
// checkpoints survive, as on a disk.
func (s *Server) Stop() {
	s.mu.Lock()
	h := s.http
	for _, f := range s.futures {
		if !f.ended {
			f.fail(http.StatusBadRequest,
				fmt.Sprintf("Model %s not loaded (likely stale request from previous server)", f.model))
		}
	}
	s.models, s.left = map[string]*model{}, map[int][]contribution{}
	s.changed.Broadcast()
	s.mu.Unlock()
	_ = h.Close()
	s.serving.Wait()
}

// Problems returns what clients have done that they must not do.
func (s *Server) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems)
}

func (s *Server) problem(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, text)
}

// Count is how often an operation was executed: forward, forward_backward, optim_step, sample and the others.
func (s *Server) Count(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[operation]
}

// Passes is how often the server was asked for a pass of a model that it knows, by the type and the coding of the
// request's body.
func (s *Server) Passes() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.passes)
}

// Models is how many are loaded.
func (s *Server) Models() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.models)
}

// id makes a name. The caller holds s.mu.
func (s *Server) id(prefix string) string {
	s.made++
	return fmt.Sprintf("%s_%08x", prefix, s.made)
}

// serve answers one request, or fails as a fault prescribes.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	kind := operationOf(r, body)
	if strings.HasSuffix(path, "/archive") {
		kind = "archive"
	}
	if s.hung.Load() {
		<-r.Context().Done()
		return
	}
	fault, ok := s.fault(kind)
	if ok && fault.Delay > 0 {
		select {
		case <-time.After(fault.Delay):
		case <-r.Context().Done():
			return
		}
	}
	if ok && fault.Status != 0 {
		writeJSON(w, fault.Status, map[string]any{"detail": fault.Detail})
		return
	}
	if ok && fault.Restart {
		s.restarts.Go(func() {
			s.Stop()
			if err := s.Start(); err != nil {
				s.problem("the server did not start again: " + err.Error())
			}
		})
		panic(http.ErrAbortHandler)
	}
	status, reply := s.route(r, path, body)
	if ok && fault.Drop {
		panic(http.ErrAbortHandler)
	}
	switch v := reply.(type) {
	case string:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, v)
	case redirect:
		http.Redirect(w, r, string(v), status)
	case protobuf:
		w.Header().Set("Content-Type", kindProtobuf)
		w.WriteHeader(status)
		_, _ = w.Write(v)
	case []byte:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.WriteHeader(status)
		_, _ = w.Write(v)
	default:
		writeJSON(w, status, reply)
	}
}

// redirect is the address of another answer.
type redirect string

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// detail is the body of an error.
func detail(status int, format string, args ...any) (int, any) {
	return status, map[string]string{"detail": fmt.Sprintf(format, args...)}
}
