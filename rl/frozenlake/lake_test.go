package frozenlake

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"deepswe/env/testkit"
)

func options(t *rapid.T) Options {
	low := rapid.IntRange(2, 9).Draw(t, "min size")
	p := rapid.Float64Range(0.3, 1).Draw(t, "min frozen")
	return Options{
		MinSize: low, MaxSize: rapid.IntRange(low, 10).Draw(t, "max size"),
		MinFrozen: p, MaxFrozen: rapid.Float64Range(p, 1).Draw(t, "max frozen"),
		MaxSteps: rapid.IntRange(1, 12).Draw(t, "max steps"),
	}
}

// reachable is an independent search for all cells that can be reached in n safe moves.
func reachable(m Map, n int) map[int]bool {
	at := map[int]bool{m.Start: true}
	for range n {
		next := map[int]bool{}
		for c := range at {
			next[c] = true
			for a := left; a <= up; a++ {
				if to := m.move(c, a); m.Cells[to] != hole {
					next[to] = true
				}
			}
		}
		at = next
	}
	return at
}

func TestMapsCanBeSolved(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := options(t)
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		m := Generate(seed, o)
		shortest, _ := m.distance()
		switch {
		case m.Size < o.MinSize || m.Size > o.MaxSize || len(m.Cells) != m.Size*m.Size:
			t.Fatalf("size %d with %d cells", m.Size, len(m.Cells))
		case m.Start == m.Goal || m.Cells[m.Start] != Frozen || m.Cells[m.Goal] != goal:
			t.Fatalf("start %d (%c), goal %d (%c)", m.Start, m.Cells[m.Start], m.Goal, m.Cells[m.Goal])
		case strings.Count(string(cells(m)), string(goal)) != 1:
			t.Fatal("there is more than one goal")
		case shortest < 1 || shortest > o.MaxSteps:
			t.Fatalf("the shortest path has %d moves of %d", shortest, o.MaxSteps)
		case !reachable(m, shortest)[m.Goal] || reachable(m, shortest-1)[m.Goal]:
			t.Fatalf("%d is not the length of the shortest path", shortest)
		case !reflect.DeepEqual(m, Generate(seed, o)):
			t.Fatal("the same seed gave another map")
		}
	})
}

func cells(m Map) []byte {
	b := make([]byte, len(m.Cells))
	for i, c := range m.Cells {
		b[i] = byte(c)
	}
	return b
}

// The defaults give the published distribution: all sizes are equally frequent, and the share of frozen cells is within
// its bounds.
func TestDefaultDistribution(t *testing.T) {
	t.Parallel()
	const n = 4000
	sizes := map[int]int{}
	frozen, inner := 0, 0
	for seed := range uint64(n) {
		m := Generate(seed, Options{})
		sizes[m.Size]++
		if m.Size < 6 {
			continue
		}
		// Small maps have more ice than drawn, because many with holes cannot be solved.
		for i, c := range m.Cells {
			if i != m.Start && i != m.Goal {
				inner++
				if c == Frozen {
					frozen++
				}
			}
		}
	}
	for size := 2; size <= 9; size++ {
		if got := float64(sizes[size]) / n; math.Abs(got-1.0/8) > 0.03 {
			t.Errorf("size %d: %.3f of the maps, want about 1/8", size, got)
		}
	}
	if got := float64(frozen) / float64(inner); got < 0.70 || got > 0.78 {
		t.Errorf("%.3f of the cells are frozen, want about 0.73", got)
	}
}

// A task is a seed, so the map of a seed must never change.
func TestMapsStayTheSame(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for seed := range uint64(6) {
		m := Generate(seed, Options{})
		shortest, _ := m.distance()
		fmt.Fprintf(&b, "seed %d, %d moves\n%s\n\n", seed, shortest, NewEpisode(m).Grid())
	}
	testkit.Golden(t, "testdata/maps.txt", b.String())
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{MinSize: 1}, {MinSize: 5, MaxSize: 4}, {MaxSize: maxSize + 1}, {MinFrozen: -0.1}, {MaxFrozen: 1.1},
		{MinFrozen: 0.9, MaxFrozen: 0.8}, {MinFrozen: math.NaN()}, {MaxSteps: -1},
	} {
		if o.Validate() == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	if err := (Options{}).Validate(); err != nil {
		t.Error(err)
	}
}

// draw makes a map from a drawing: S start, G goal, _ and O.
func draw(rows ...string) Map {
	m := Map{Size: len(rows)}
	for _, c := range strings.Join(rows, "") {
		if c == 'S' {
			m.Start, c = len(m.Cells), '_'
		}
		if c == 'G' {
			m.Goal = len(m.Cells)
		}
		m.Cells = append(m.Cells, Cell(c))
	}
	return m
}

func TestSteps(t *testing.T) {
	t.Parallel()
	lake := draw(
		"S_O",
		"_O_",
		"__G")
	tests := []struct {
		moves []Action
		want  Outcome
		grid  string
	}{
		{nil, playing, "P\t_\tO\n_\tO\t_\n_\t_\tG"},
		{[]Action{left, up}, playing, "P\t_\tO\n_\tO\t_\n_\t_\tG"},
		{[]Action{Invalid, 9, -1}, playing, "P\t_\tO\n_\tO\t_\n_\t_\tG"},
		{[]Action{right}, playing, "_\tP\tO\n_\tO\t_\n_\t_\tG"},
		{[]Action{right, right}, fell, "_\t_\tX\n_\tO\t_\n_\t_\tG"},
		{[]Action{right, right, left}, fell, "_\t_\tX\n_\tO\t_\n_\t_\tG"},
		{[]Action{down, down, right, right}, Arrived, "_\t_\tO\n_\tO\t_\n_\t_\t√"},
		{[]Action{down, down, right, right, up}, Arrived, "_\t_\tO\n_\tO\t_\n_\t_\t√"},
	}
	for _, tt := range tests {
		e := NewEpisode(lake)
		for _, a := range tt.moves {
			e.Step(a)
		}
		if e.Outcome() != tt.want || e.Grid() != tt.grid {
			t.Errorf("%v: outcome %d, want %d\n%s", tt.moves, e.Outcome(), tt.want, e.Grid())
		}
	}
}

func TestCompact(t *testing.T) {
	t.Parallel()
	lake := draw(
		"S_O",
		"_O_",
		"__G")
	e := NewEpisode(lake)
	if got, want := e.Compact(1), "#"+"#__"+"_"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e.Step(down)
	if got, want := e.Compact(2), "#"+"#__"+"##_O_"+"#__"+"#"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		o := options(t)
		m := Generate(rapid.Uint64().Draw(t, "seed"), o)
		e := NewEpisode(m)
		radius := rapid.IntRange(1, 12).Draw(t, "radius")
		got := e.Compact(radius)
		if len(got) != compactCells(radius) {
			t.Fatalf("%d cells, want %d", len(got), compactCells(radius))
		}
		// The player is in the middle, on ice, and the goal is visible if it is near enough.
		if got[len(got)/2] != byte(Frozen) {
			t.Fatalf("the middle of %q is not the player's cell", got)
		}
		dy, dx := m.Goal/m.Size-m.Start/m.Size, m.Goal%m.Size-m.Start%m.Size
		near := max(dy, -dy)+max(dx, -dx) <= radius
		if near != strings.Contains(got, string(goal)) {
			t.Fatalf("goal at %d,%d: %q", dy, dx, got)
		}
	})
}
