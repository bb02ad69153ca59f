package frozenlake

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
)

// Cell is the kind of one square of the lake.
type Cell byte

// The cells. The start is frozen.
const (
	Frozen Cell = '_'
	hole   Cell = 'O'
	goal   Cell = 'G'
)

// Options shape the maps. A zero field takes the default in brackets, the distribution of the published FrozenLake runs
// of rLLM.
type Options struct {
	// MinSize and MaxSize bound the side of the square, inclusive [2, 9].
	MinSize int
	MaxSize int
	// MinFrozen and MaxFrozen bound the probability with which a cell is frozen and not a hole [0.6, 0.85].
	MinFrozen float64
	MaxFrozen float64
	// MaxSteps is the length that the shortest safe path never exceeds [8].
	MaxSteps int
}

func (o Options) withDefaults() Options {
	o.MinSize, o.MinFrozen = cmp.Or(o.MinSize, 2), cmp.Or(o.MinFrozen, 0.6)
	o.MaxSize, o.MaxFrozen = cmp.Or(o.MaxSize, max(9, o.MinSize)), cmp.Or(o.MaxFrozen, max(0.85, o.MinFrozen))
	o.MaxSteps = cmp.Or(o.MaxSteps, 8)
	return o
}

// Validate refuses options that no map satisfies.
func (o Options) Validate() error {
	o = o.withDefaults()
	switch {
	case o.MinSize < 2 || o.MaxSize < o.MinSize || o.MaxSize > maxSize:
		return fmt.Errorf("map size: want 2 <= min_size <= max_size <= %d, got %d and %d", maxSize, o.MinSize, o.MaxSize)
	// The negated form also refuses NaN.
	case !(o.MinFrozen > 0 && o.MinFrozen <= o.MaxFrozen && o.MaxFrozen <= 1):
		return fmt.Errorf("frozen probability: want 0 < min_frozen <= max_frozen <= 1, got %g and %g", o.MinFrozen,
			o.MaxFrozen)
	case o.MaxSteps < 1:
		return errors.New("max_steps: want at least 1")
	}
	return nil
}

// maxSize bounds a map to what fits on a screen and keeps a task's text small.
const maxSize = 64

// Map is a lake: Size rows of Size cells, row by row from the top left.
type Map struct {
	Size  int
	Cells []Cell
	Start int
	Goal  int
}

// Generate makes the map that belongs to the seed. Start and goal are distinct, and a safe path of at most MaxSteps
// moves joins them. The options must be valid.
func Generate(seed uint64, o Options) Map {
	o = o.withDefaults()
	r := rand.New(rand.NewPCG(seed, mapStream))
	size := o.MinSize + r.IntN(o.MaxSize-o.MinSize+1)
	frozen := o.MinFrozen + r.Float64()*(o.MaxFrozen-o.MinFrozen)
	m := Map{Size: size, Cells: make([]Cell, size*size)}
	// Neighbouring start and goal are always possible, so this ends.
	for {
		for i := range m.Cells {
			m.Cells[i] = hole
			if r.Float64() < frozen {
				m.Cells[i] = Frozen
			}
		}
		m.Start = r.IntN(len(m.Cells))
		m.Goal = r.IntN(len(m.Cells) - 1)
		if m.Goal >= m.Start {
			m.Goal++
		}
		m.Cells[m.Start] = Frozen
		m.Cells[m.Goal] = goal
		if d, ok := m.distance(); ok && d <= o.MaxSteps {
			return m
		}
	}
}

// mapStream is the stream of random numbers for maps.
const mapStream = 0x6c616b65

// distance is the length of the shortest safe path from start to goal, by breadth-first search: a depth-first search
// with a visited set, as the reference has it, rejects maps that can be solved.
func (m Map) distance() (int, bool) {
	steps := make([]int, len(m.Cells))
	queue := []int{m.Start}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if at == m.Goal {
			return steps[at], true
		}
		for a := left; a <= up; a++ {
			next := m.move(at, a)
			if next == m.Start || steps[next] > 0 || m.Cells[next] == hole {
				continue
			}
			steps[next] = steps[at] + 1
			queue = append(queue, next)
		}
	}
	return 0, false
}

// move is the cell that an action leads to from a cell: the same one at the edge of the map.
func (m Map) move(at int, a Action) int {
	row, col := at/m.Size, at%m.Size
	switch a {
	case left:
		col = max(col-1, 0)
	case down:
		row = min(row+1, m.Size-1)
	case right:
		col = min(col+1, m.Size-1)
	case up:
		row = max(row-1, 0)
	}
	return row*m.Size + col
}
