package trainertest

import "time"

// Fault is a failure of one request.
type Fault struct {
	// Status and Detail are the answer, and nothing is done.
	Status int
	Detail string
	// Drop does what was asked and breaks the connection before the answer.
	Drop bool
	// Restart kills the server and starts it again; nothing is done.
	Restart bool
	// Delay comes before anything else.
	Delay time.Duration
	// Stale publishes nothing: the new sampling session has the weights of the last one.
	Stale bool
	// Fails accepts the operation, which then fails with Detail. Idle accepts it and changes nothing: a gradient is not
	// kept, and a publication gives the sampling session of the one before.
	Fails, Idle bool
}

// Inject lets the next requests of a path, or for a pass of that name, go wrong, one after the other. The zero Fault
// lets one pass.
func (s *Server) Inject(path string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[path] = append(s.faults[path], faults...)
}

// Hang lets every request from now on wait for an answer until the server stops.
func (s *Server) Hang() { s.hung.Store(true) }

// The names of faults that take effect later: that of a stale publication, and what precedes the name of an operation
// whose execution fails or does nothing.
const (
	stale   = "stale"
	failing = "failing "
	idle    = "idle "
)

// takeFault removes and returns the next fault with the given name. The caller holds s.mu.
func (s *Server) takeFault(name string) (Fault, bool) {
	waiting := s.faults[name]
	if len(waiting) == 0 {
		return Fault{}, false
	}
	s.faults[name] = waiting[1:]
	return waiting[0], true
}

// fault takes the next fault of a path. If it takes effect later, it is queued under its other name as well.
func (s *Server) fault(path string) (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.takeFault(path)
	for later, applies := range map[string]bool{stale: f.Stale, failing + path: f.Fails, idle + path: f.Idle} {
		if applies {
			s.faults[later] = append(s.faults[later], f)
		}
	}
	return f, ok
}
