package docker

import (
	"context"
	"sync"
	"time"
)

// patience is how long a caller whose context has ended waits for its work to be undone. Only a daemon that does not
// answer takes longer.
const patience = 10 * time.Second

// callGroup runs one call for each key at a time, however many callers want its result. The call goes on while a caller
// waits for it, and is cancelled when the last one gives up, who then waits for it to end.
type callGroup[T any] struct {
	mu  sync.Mutex
	all map[string]*call[T]
}

type call[T any] struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{}
	value   T
	err     error
}

// do joins the call for a key, or begins it. work runs on a goroutine of counts, under a context that ends with life
// and carries no deadline of a single caller.
func (fs *callGroup[T]) do(
	ctx, life context.Context, counts *sync.WaitGroup, key string, work func(context.Context) (T, error),
) (T, error) {
	fs.mu.Lock()
	if fs.all == nil {
		fs.all = map[string]*call[T]{}
	}
	f := fs.all[key]
	if f == nil {
		f = &call[T]{done: make(chan struct{})}
		var during context.Context
		during, f.cancel = context.WithCancel(life)
		fs.all[key] = f
		counts.Go(func() {
			defer f.cancel()
			f.value, f.err = work(during)
			fs.forget(key, f)
			close(f.done)
		})
	}
	f.waiting++
	fs.mu.Unlock()

	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
	}
	fs.mu.Lock()
	f.waiting--
	last := f.waiting == 0
	if last {
		// The next caller must not join work that is being cancelled.
		f.cancel()
		if fs.all[key] == f {
			delete(fs.all, key)
		}
	}
	fs.mu.Unlock()
	if last {
		select {
		case <-f.done:
		case <-time.After(patience):
		}
	}
	var none T
	return none, context.Cause(ctx)
}

func (fs *callGroup[T]) forget(key string, f *call[T]) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.all[key] == f {
		delete(fs.all, key)
	}
}
