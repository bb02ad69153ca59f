package metrics

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/agent/run"
)

// scripted is a sink whose Send is given by the test.
type scripted struct {
	send func(ctx context.Context, points []Point) error

	mu    sync.Mutex
	steps []int
	ended error
	calls int
}

func (s *scripted) Send(ctx context.Context, points []Point) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.send != nil {
		if err := s.send(ctx, points); err != nil {
			return err
		}
	}
	for _, p := range points {
		s.steps = append(s.steps, p.Step)
	}
	return nil
}

func (s *scripted) Close(_ context.Context, cause error) error {
	s.ended = cause
	return nil
}

func (s *scripted) target(replay bool) Target {
	return Target{Name: "scripted", Replay: replay, Open: func(Run) Sink { return s }}
}

// A sink that fails, hangs or panics neither stops nor delays the run. There is one warning, and lost points are
// counted.
func TestFeedOfASinkThatDoesNotWork(t *testing.T) {
	hang := func(ctx context.Context, _ []Point) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, c := range map[string]struct {
		send  func(context.Context, []Point) error
		says  string
		takes time.Duration
	}{
		"fails":  {func(context.Context, []Point) error { return errors.New("disk full") }, "disk full", usual.end},
		"panics": {func(context.Context, []Point) error { panic("a bug") }, "panic: a bug", usual.end},
		"hangs":  {hang, "", usual.end},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, warned := warnings()
				s := &scripted{send: c.send}
				begun := time.Now()
				f := NewFeed(s.target(true), Run{}, nil, log)
				for step := range mostWaiting + 5 {
					f.Write(point(step, nil))
				}
				if time.Since(begun) != 0 {
					t.Error("writing waited")
				}
				time.Sleep(time.Second / 2)
				f.Close(run.ErrInterrupted)
				if took := time.Since(begun) - time.Second/2; took != c.takes {
					t.Errorf("closing took %s, want %s", took, c.takes)
				}
				w := warned()
				if !strings.Contains(w, c.says) || !strings.Contains(w, "points=10005") ||
					strings.Count(w, "trying again") > 1 || !errors.Is(s.ended, run.ErrInterrupted) {
					t.Errorf("%s; ended with %v", w, s.ended)
				}
				if s.calls > 12 {
					t.Errorf("%d tries in ten seconds", s.calls)
				}
			})
		})
	}
}

// A call that does not notice its deadline, as on a disk that is away, is left behind.
func TestFeedOfASinkThatHangsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		s := &scripted{send: func(context.Context, []Point) error {
			<-back
			return nil
		}}
		log, warned := warnings()
		f := NewFeed(s.target(false), Run{}, nil, log)
		f.Write(point(1, nil))
		begun := time.Now()
		f.Close(nil)
		if took := time.Since(begun); took != usual.end+grace {
			t.Errorf("closing took %s", took)
		}
		if w := warned(); !strings.Contains(w, "left behind") || !strings.Contains(w, "points=1") {
			t.Error(w)
		}
		close(back)
	})
}

// A sink that recovers gets all points in order. If it asks for a replay, it also gets those from before the run was
// resumed.
func TestFeedOrder(t *testing.T) {
	for _, replay := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			failures := 3
			s := &scripted{send: func(context.Context, []Point) error {
				if failures--; failures >= 0 {
					return errors.New("away")
				}
				return nil
			}}
			log, warned := warnings()
			f := NewFeed(s.target(replay), Run{}, []Point{point(0, nil), point(1, nil)}, log)
			for step := 2; step < 500; step++ {
				f.Write(point(step, nil))
				time.Sleep(time.Second / 10)
			}
			f.Close(nil)
			first := 2
			if replay {
				first = 0
			}
			if len(s.steps) != 500-first || s.steps[0] != first || s.steps[len(s.steps)-1] != 499 {
				t.Errorf("replay %v: %d points from %d", replay, len(s.steps), s.steps[0])
			}
			if w := warned(); strings.Count(w, "level=WARN") != 1 {
				t.Errorf("warnings: %s", w)
			}
		})
	}
}
