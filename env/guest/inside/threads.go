//go:build linux

package inside

import (
	"context"
	"runtime"
	"sync"

	"deepswe/env/guest"
)

// threads runs functions on operating-system threads that were prepared for them, because credentials, capabilities
// and filters belong to a thread. Without a setup function, the functions run on the calling thread, still limited
// in number. All threads are created at the start: when a fork bomb has reached the process limit, no thread can be
// created, and a Go program that needs one crashes.
type threads struct {
	setup func() error
	slots chan struct{}
	jobs  chan func(error)
	quit  chan struct{} // closed by close
	ended sync.WaitGroup
}

func newThreads(limit int, setup func() error) *threads {
	t := &threads{setup: setup, slots: make(chan struct{}, limit), jobs: make(chan func(error)), quit: make(chan struct{})}
	if setup != nil {
		for range limit {
			t.ended.Go(t.work)
		}
	}
	return t
}

// do runs f and waits for it. If it returns an error, f did not run: ctx has ended, or the thread could not be set
// up.
func (t *threads) do(ctx context.Context, f func()) error {
	if t.setup == nil {
		select {
		case t.slots <- struct{}{}:
			defer func() { <-t.slots }()
			f()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	done := make(chan error, 1)
	job := func(broken error) {
		if broken == nil {
			f()
		}
		done <- broken
	}
	select {
	case t.jobs <- job:
		return <-done
	case <-ctx.Done():
		return ctx.Err()
	}
}

// offer passes f to an idle thread, without waiting for f, and reports whether there was one. If the thread could
// not be set up, it calls refused instead of f.
func (t *threads) offer(f func(), refused func(error)) bool {
	select {
	case t.jobs <- func(broken error) {
		if broken != nil {
			refused(broken)
			return
		}
		f()
	}:
		return true
	default:
		return false
	}
}

// work never unlocks its thread, so that the thread ends with the goroutine: nothing else may run with its rights.
func (t *threads) work() {
	runtime.LockOSThread()
	broken := t.setup()
	for {
		select {
		case job := <-t.jobs:
			job(broken)
		case <-t.quit:
			return
		}
	}
}

// join turns the calling goroutine's thread into one of t for good, and reports whether that succeeded.
func (t *threads) join() bool {
	if t.setup == nil {
		return true
	}
	runtime.LockOSThread()
	return t.setup() == nil
}

// close waits for the threads to end. After it, offer returns false and do waits for its context: calls may still come
// from the host.
func (t *threads) close() {
	close(t.quit)
	t.ended.Wait()
}

// reserveThreads makes the Go runtime create n threads, which it keeps for later use.
func reserveThreads(n int) {
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	ready.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread() // a locked goroutine keeps its thread, so the next one needs another
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		})
	}
	ready.Wait()
	close(release)
	done.Wait()
}

// fan lets several threads process files and delivers the results in the order of the files, in bounded memory
// however many files there are. It is not safe for concurrent use.
type fan[T, R any] struct {
	ctx     context.Context
	helpers *threads
	work    func([]T) R
	deliver func(R) error

	group   []T
	weight  int64
	queue   []*share[R]
	workers sync.WaitGroup
}

// share is the future result of one group of files.
type share[R any] struct {
	done   chan struct{}
	result R
	err    error
}

const (
	// Groups are large enough to be worth switching threads.
	groupFiles  = 64
	groupWeight = 1 << 20
	// groupsAhead limits the groups that are in work, or that wait for those before them to be delivered.
	groupsAhead = 16
)

// add adds one item, whose weight is in bytes.
func (f *fan[T, R]) add(item T, weight int64) error {
	f.group = append(f.group, item)
	if f.weight += weight; len(f.group) < groupFiles && f.weight < groupWeight {
		return nil
	}
	return f.hand()
}

func (f *fan[T, R]) hand() error {
	group, s := f.group, &share[R]{done: make(chan struct{})}
	f.group, f.weight = nil, 0
	f.queue = append(f.queue, s)
	f.workers.Go(func() {
		defer close(s.done)
		gone := f.helpers.do(f.ctx, func() {
			_, s.err = guard(func() (guest.Message, error) {
				s.result = f.work(group)
				return nil, nil
			})
		})
		if gone != nil {
			s.err = gone
		}
	})
	if len(f.queue) < groupsAhead {
		return nil
	}
	return f.nextResult()
}

func (f *fan[T, R]) nextResult() error {
	s := f.queue[0]
	f.queue = f.queue[1:]
	<-s.done
	if s.err != nil {
		return s.err
	}
	return f.deliver(s.result)
}

// finish delivers the remaining results, and waits for the workers even after an error. err is the error of the
// caller's walk, which is returned.
func (f *fan[T, R]) finish(err error) error {
	if err == nil && len(f.group) > 0 {
		err = f.hand()
	}
	for err == nil && len(f.queue) > 0 {
		err = f.nextResult()
	}
	f.workers.Wait()
	return err
}

// parallelism sets how many processors the guest uses. Verbs that process many files widen it; everything else runs
// on one processor, because waking a thread on another costs a short verb more than it gains, and hundreds of
// guests share a machine.
type parallelism struct {
	most int

	mu    sync.Mutex
	users int
}

func newParallelism(most int) *parallelism {
	runtime.GOMAXPROCS(1)
	return &parallelism{most: most}
}

// widen raises the number of processors until narrow has been called as many times.
func (p *parallelism) widen() { p.change(1) }

func (p *parallelism) narrow() { p.change(-1) }

func (p *parallelism) change(by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.users > 0
	p.users += by
	switch now := p.users > 0; {
	case now && !before:
		runtime.GOMAXPROCS(p.most)
	case before && !now:
		runtime.GOMAXPROCS(1)
	}
}
