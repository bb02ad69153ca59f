package train

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/agent/run"
)

// A run that is aborted ends while workers wait for groups that will never be admitted.
func TestStreamEndsWithTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("disk full")
		s := newStream(1, time.Now)
		e := &run.Engine{Options: run.Options{Workers: 4}, Runner: run.RunnerFunc(
			func(context.Context, run.Job) (run.Result, error) {
				time.Sleep(time.Second)
				return run.Result{}, run.Abort(broken)
			})}
		s.start(t.Context(), e)
		s.admit(&group{name: "000001.0", jobs: []run.Job{{Task: "t", Group: "000001.0"}}})
		if _, err := s.take(1); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		s.close()
	})
}

// An update takes what is complete in the order of admission, keeps room for what no later one may learn from, and
// takes that before anything else.
func TestTake(t *testing.T) {
	s := newStream(1, time.Now)
	add := func(number, born, left int) {
		g := &group{number: number, name: groupName(1, number), born: born, begun: true, left: left}
		s.groups[g.name] = g
	}
	s.updates = 3
	add(5, 3, 0)
	add(4, 3, 0)
	add(3, 2, 1) // the last update for it, and it is not complete
	add(2, 2, 0) // the last update for it
	numbers := func(groups []*group) (out []int) {
		for _, g := range groups {
			out = append(out, g.number)
		}
		return out
	}
	for most, want := range map[int][]int{1: {2}, 2: {2}, 3: {2, 4}, 4: {2, 4, 5}} {
		if got := numbers(s.complete(most)); !slices.Equal(got, want) {
			t.Errorf("with room for %d: %v, want %v", most, got, want)
		}
	}
}

func TestPlace(t *testing.T) {
	p := place{}
	for _, n := range []int{2, 0, 4, 1} {
		p = p.take(n)
	}
	if p.Cursor != 3 || !slices.Equal(p.Ahead, []int{4}) {
		t.Errorf("%+v", p)
	}
}
