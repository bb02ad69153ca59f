package rlcmd

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/charmbracelet/x/ansi"

	"deepswe/agent/cli"
	"deepswe/env/testkit"
	"deepswe/rl/metrics/metricstest"
)

// viewOn returns a view on a terminal of that width, or on a writer that is no terminal.
func viewOn(w io.Writer, live bool, width int) *view {
	return newView(cli.NewScreenOn(w, cli.Terminal{Live: live, Width: func() int { return width }}), time.Now)
}

// last returns what is on the screen at the end: the text after the last erase.
func last(screen string) string {
	if i := strings.LastIndex(screen, "\x1b[J"); i >= 0 {
		screen = screen[i+len("\x1b[J"):]
	}
	return ansi.Strip(screen)
}

func TestLiveView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		v := viewOn(&b, true, 80)
		r := v.run("frozenlake", 160)
		for _, p := range metricstest.Points(60) {
			r.playing(p.Step, "train", 3, 256)
			time.Sleep(122 * time.Second / 60)
			r.point(p)
		}
		r.playing(60, "train", 128, 256)
		if err := v.Close(true); err != nil {
			t.Fatal(err)
		}
		testkit.Golden(t, "testdata/live.txt", last(b.String()))
	})
}

func TestLiveViewOfAnAblation(t *testing.T) {
	var b strings.Builder
	v := viewOn(&b, true, 80)
	for i, n := range []int{20, 10, 5} {
		r := v.run(fmt.Sprintf("a variant with quite a long name seed-%d", i), 19)
		for _, p := range metricstest.Points(n) {
			r.point(p)
		}
	}
	if err := v.Close(true); err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, "testdata/live-ablation.txt", last(b.String()))
}

func TestPlainLines(t *testing.T) {
	var b strings.Builder
	v := viewOn(&b, false, 80)
	r := v.run("frozenlake", 160)
	for _, p := range metricstest.Points(8) {
		r.playing(p.Step, "train", 1, 2)
		r.point(p)
	}
	r.warning("step 7: the gradient was not finite")
	if err := v.Close(true); err != nil {
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
				v := viewOn(&b, live, width)
				for i := range runs {
					r := v.run(strings.Repeat("long name ", 9)+fmt.Sprint(i), 100000)
					for _, p := range metricstest.Points(12) {
						p.Step += 99980
						r.playing(p.Step, "validation", 100, 100000)
						r.point(p)
					}
					r.warning(strings.Repeat("something to look at ", 20))
				}
				if err := v.Close(true); err != nil {
					t.Fatal(err)
				}
				limit := width
				if !live {
					limit = 80
				}
				for line := range strings.SplitSeq(strings.ReplaceAll(ansi.Strip(b.String()), "\r", "\n"), "\n") {
					if w := ansi.StringWidth(line); w >= limit {
						t.Errorf("live %v, %d runs: %d columns of %d: %q", live, runs, w, limit, line)
					}
				}
			}
		}
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
	v := viewOn(p, false, 80)
	r := v.run("x", 10)
	for _, point := range metricstest.Points(5) {
		r.point(point)
	}
	if err := v.Close(true); err == nil || p.writes != 1 {
		t.Errorf("%d writes, %v: want one, and its error", p.writes, err)
	}
}

func Example_bar() {
	fmt.Println(bar(3, 4, 8))
	// Output:
	// ██████░░
}
