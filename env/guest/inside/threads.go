//go:build linux

package inside

import (
	"context"
	"runtime"
	"sync"

	"deepswe/env/guest"
)

// threads runs functions on operating-system threads that were set up for them: rights, capabilities and filters belong
// to a thread, not to a process. Without a setup the functions run where they are called, still no more than the limit
// at once. All threads are there from the beginning: when a fork bomb has filled the process limit, no thread can be
// created, and a Go program that needs one dies.
type threads struct {
	setup func() error
	slots chan struct{}
	jobs  chan func(error)
	ended sync.WaitGroup
}

func newThreads(limit int, setup func() error) *threads {
	t := &threads{setup: setup, slots: make(chan struct{}, limit), jobs: make(chan func(error))}
	if setup != nil {
		for range limit {
			t.ended.Go(t.work)
		}
	}
	return t
}

// do runs f and waits for it. The error is ctx's, or says that the thread could not be set up; f did not run then.
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

// offer hands f to an idle thread, and reports whether there was one. It does not wait for f. Where the thread could
// not be set up, refused is called instead.
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

// work never unlocks its thread, so that the thread ends with it: nothing else may run with these rights.
func (t *threads) work() {
	runtime.LockOSThread()
	broken := t.setup()
	for job := range t.jobs {
		job(broken)
	}
}

// join makes the calling goroutine's thread one of them, for good. It reports whether that could be done.
func (t *threads) join() bool {
	if t.setup == nil {
		return true
	}
	runtime.LockOSThread()
	return t.setup() == nil
}

// close waits for the threads to end. They must not be used any more.
func (t *threads) close() {
	close(t.jobs)
	t.ended.Wait()
}

// reserveThreads makes the runtime create n threads, which it keeps and uses from then on.
func reserveThreads(n int) {
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	ready.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread() // a goroutine that waits like this holds its thread, so the next one needs another
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		})
	}
	ready.Wait()
	close(release)
	done.Wait()
}

// fan lets several threads work on files and delivers the results in the order in which the files came, so that the
// memory it takes does not depend on how many there are. It belongs to one goroutine.
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

// share is one group's result to be.
type share[R any] struct {
	done   chan struct{}
	result R
	err    error
}

const (
	// A group is worth a change of threads.
	groupFiles  = 64
	groupWeight = 1 << 20
	// groupsAhead bounds what is worked on or waits to be delivered.
	groupsAhead = 16
)

// add takes one more item, whose weight is in bytes.
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
	return f.next()
}

func (f *fan[T, R]) next() error {
	s := f.queue[0]
	f.queue = f.queue[1:]
	<-s.done
	if s.err != nil {
		return s.err
	}
	return f.deliver(s.result)
}

// finish delivers what is left. It waits for the workers also after an error; err is the walk's, and is returned.
func (f *fan[T, R]) finish(err error) error {
	if err == nil && len(f.group) > 0 {
		err = f.hand()
	}
	for err == nil && len(f.queue) > 0 {
		err = f.next()
	}
	f.workers.Wait()
	return err
}

// parallelism is how many processors the guest uses. Verbs that work on many files widen it; everything else runs on
// one, because waking a thread on another costs a short verb more than it gains, and hundreds of guests share a
// machine.
type parallelism struct {
	most int

	mu    sync.Mutex
	users int
}

func newParallelism(most int) *parallelism {
	runtime.GOMAXPROCS(1)
	return &parallelism{most: most}
}

// widen holds until narrow has been called as often.
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
