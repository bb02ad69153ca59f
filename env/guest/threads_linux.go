package guest

import (
	"context"
	"runtime"
	"sync"
)

// threads runs functions on operating-system threads that were set up for them: rights, capabilities and filters belong
// to a thread, not to a process. Without a setup the functions run where they are called, still no more than the limit
// at once. All threads are there from the beginning: when a fork bomb has filled the process limit, no thread can be
// had, and a Go program that needs one dies.
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
	if t.setup != nil {
		return t.hand(ctx, f)
	}
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
		f()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// offer lets a thread that waits for work run f, and does not wait for it: refused is called instead where the thread
// could not be set up. It reports whether there was such a thread.
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

func (t *threads) hand(ctx context.Context, f func()) error {
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

// work never unlocks its thread, so that the thread ends with it: nobody else may run with these rights.
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

// close waits for the threads to end. Nothing may be asked of them any more.
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
