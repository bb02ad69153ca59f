package report

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"deepswe/env/testkit"
	"deepswe/rl/metrics"
)

// stepped is a clock that moves on by a second at each look.
func stepped() func() time.Time {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return func() time.Time {
		now = now.Add(time.Second)
		return now
	}
}

// somePoints are a run as it might have been.
func somePoints(n int) []metrics.Point {
	var points []metrics.Point
	for step := range n {
		x := float64(step) / float64(n)
		v := map[string]float64{
			"reward/mean": 0.2 + 0.6*x, "entropy/mean": 2.5 - 2*x, "loss/clip_fraction": 0.0123, "optim/grad_norm": 0.00234,
			"time/step": 12.34, "groups/total": 32, "groups/solve_none": 12, "groups/solve_partial": 15, "groups/solve_all": 5,
			"groups/effective": 15, "loss/kl_k3": 1e-5, "stop/max_steps": 0.5 - 0.3*x, "stop/submitted": 0.5 + 0.3*x,
			"stop/timeout": 0, "a/<script>": 1, "time/rollouts": 10, "time/update": 2,
		}
		if step%5 == 0 {
			v["val/pass@1"], v["val/pass@1_low"], v["val/pass@1_high"], v["val/random"] = x, max(0, x-0.1), min(1, x+0.1), 0.2
		}
		if step == 0 {
			v = map[string]float64{"val/pass@1": 0.1, "val/pass@1_low": 0.05, "val/pass@1_high": 0.2, "val/random": 0.2}
		}
		points = append(points, metrics.Point{Step: step, Values: v})
	}
	return points
}

// last is what stands on the screen after all that was written: what follows the last erasure.
func last(screen string) string {
	if i := strings.LastIndex(screen, "\x1b[J"); i >= 0 {
		screen = screen[i+len("\x1b[J"):]
	}
	return ansi.Strip(screen)
}

func TestLiveView(t *testing.T) {
	var b strings.Builder
	v := NewView(&b, ViewOptions{Live: true, Now: stepped()})
	r := v.Run("frozenlake", 160)
	for _, p := range somePoints(60) {
		r.Playing(p.Step, "train", 3, 256)
		r.Point(p)
	}
	r.Playing(60, "train", 128, 256)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, "testdata/live.txt", last(b.String()))
}

func TestLiveViewOfAnAblation(t *testing.T) {
	var b strings.Builder
	v := NewView(&b, ViewOptions{Live: true, Now: stepped()})
	for i, n := range []int{20, 10, 5} {
		r := v.Run(fmt.Sprintf("a variant with quite a long name seed-%d", i), 19)
		for _, p := range somePoints(n) {
			r.Point(p)
		}
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, "testdata/live-ablation.txt", last(b.String()))
}

func TestPlainLines(t *testing.T) {
	var b strings.Builder
	v := NewView(&b, ViewOptions{Now: stepped()})
	r := v.Run("frozenlake", 160)
	for _, p := range somePoints(8) {
		r.Playing(p.Step, "train", 1, 2)
		r.Point(p)
	}
	r.Warning("step 7: the gradient was not finite")
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, "testdata/plain.txt", b.String())
	if strings.Contains(b.String(), "\x1b") {
		t.Error("escape codes in a log")
	}
}

func TestNothingIsWiderThanTheScreen(t *testing.T) {
	for _, live := range []bool{true, false} {
		for _, width := range []int{80, 40} {
			for _, runs := range []int{1, 3} {
				var b strings.Builder
				v := NewView(&b, ViewOptions{Live: live, Width: width, Now: stepped()})
				for i := range runs {
					r := v.Run(strings.Repeat("long name ", 9)+fmt.Sprint(i), 100000)
					for _, p := range somePoints(12) {
						p.Step += 99980
						r.Playing(p.Step, "validation", 100, 100000)
						r.Point(p)
					}
					r.Warning(strings.Repeat("something to look at ", 20))
				}
				if err := v.Close(); err != nil {
					t.Fatal(err)
				}
				limit := width
				if !live {
					limit = 80
				}
				for line := range strings.SplitSeq(ansi.Strip(b.String()), "\n") {
					if w := ansi.StringWidth(line); w >= limit {
						t.Errorf("live %v, %d runs: %d columns of %d: %q", live, runs, w, limit, line)
					}
				}
			}
		}
	}
}

// Painting is cheap, but a fast run has thousands of events a second.
func TestRepaintsAreBounded(t *testing.T) {
	var b strings.Builder
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	v := NewView(&b, ViewOptions{Live: true, Now: func() time.Time { return now }})
	r := v.Run("x", 10)
	for i := range 1000 {
		now = now.Add(time.Millisecond)
		r.Playing(1, "train", i, 1000)
	}
	if n := strings.Count(b.String(), "step 1 of 10"); n > 11 {
		t.Errorf("painted %d times in a second", n)
	}
}

// brokenPipe fails every write and counts them.
type brokenPipe struct{ writes int }

func (p *brokenPipe) Write([]byte) (int, error) {
	p.writes++
	return 0, errors.New("broken pipe")
}

func TestAScreenThatGoesAway(t *testing.T) {
	p := &brokenPipe{}
	v := NewView(p, ViewOptions{Now: stepped()})
	r := v.Run("x", 10)
	for _, point := range somePoints(5) {
		r.Point(point)
	}
	if err := v.Close(); err == nil || p.writes != 1 {
		t.Errorf("%d writes, %v: want one, and its error", p.writes, err)
	}
}
