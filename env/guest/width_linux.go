package guest

import (
	"runtime"
	"sync"
)

// width is how many processors the guest uses. Verbs that work on many files widen it; everything else runs on one,
// because waking a thread on another costs a short verb more than it gains, and hundreds of guests share a machine.
type width struct {
	most int

	mu    sync.Mutex
	users int
}

func newWidth(most int) *width {
	runtime.GOMAXPROCS(1)
	return &width{most: most}
}

// widen lasts until narrow is called as often.
func (w *width) widen() { w.change(1) }

func (w *width) narrow() { w.change(-1) }

func (w *width) change(by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.users > 0
	w.users += by
	switch now := w.users > 0; {
	case now && !before:
		runtime.GOMAXPROCS(w.most)
	case before && !now:
		runtime.GOMAXPROCS(1)
	}
}
