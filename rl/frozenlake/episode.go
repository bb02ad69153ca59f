package frozenlake

import (
	"strconv"
	"strings"
)

// Action is a move. The numbers are those of the reference environment.
type Action int

// The actions. Invalid is whatever could not be read; it moves nothing.
const (
	Invalid Action = iota
	left
	down
	right
	up
)

// String is the word that a reply uses for the action.
func (a Action) String() string { return [...]string{"Invalid", "Left", "Down", "Right", "Up"}[a] }

const fence = "```"

// parseAction reads the action out of a reply: the content of the last closed block in triple backticks, a word or a
// number from 1 to 4. A reply without such a block, or with anything else in it, is Invalid.
func parseAction(reply string) Action {
	body, ok := lastBlock(reply)
	if !ok {
		return Invalid
	}
	word := strings.ToLower(strings.TrimSpace(body))
	for a := left; a <= up; a++ {
		if word == strings.ToLower(a.String()) || word == strconv.Itoa(int(a)) {
			return a
		}
	}
	return Invalid
}

// lastBlock pairs the fences from the left, as a reader does: an unclosed last fence opens nothing.
func lastBlock(s string) (body string, ok bool) {
	for {
		_, after, open := strings.Cut(s, fence)
		if !open {
			return body, ok
		}
		inside, rest, closed := strings.Cut(after, fence)
		if !closed {
			return body, ok
		}
		body, ok, s = inside, true, rest
	}
}

// Outcome is the state of an episode.
type Outcome int

// An episode is played until the player arrives or falls in.
const (
	playing Outcome = iota
	Arrived
	fell
)

// Episode is one crossing of a map.
type Episode struct {
	lake Map
	at   int
}

// NewEpisode puts the player on the start.
func NewEpisode(m Map) *Episode { return &Episode{lake: m, at: m.Start} }

// Outcome is the state that the episode is in.
func (e *Episode) Outcome() Outcome {
	switch e.lake.Cells[e.at] {
	case goal:
		return Arrived
	case hole:
		return fell
	default:
		return playing
	}
}

// Step makes a move and returns the new state. An invalid action and a finished episode move nothing.
func (e *Episode) Step(a Action) Outcome {
	if a < left || a > up || e.Outcome() != playing {
		return e.Outcome()
	}
	e.at = e.lake.move(e.at, a)
	return e.Outcome()
}

// Grid draws the map for a reader: one line a row, cells separated by tabs. _ is frozen, O a hole, G the goal, P the
// player, X the player in a hole, √ the player on the goal.
func (e *Episode) Grid() string {
	var b strings.Builder
	for i, c := range e.lake.Cells {
		switch {
		case i == 0:
		case i%e.lake.Size == 0:
			b.WriteByte('\n')
		default:
			b.WriteByte('\t')
		}
		if i != e.at {
			b.WriteByte(byte(c))
			continue
		}
		switch c {
		case goal:
			b.WriteRune('√')
		case hole:
			b.WriteByte('X')
		default:
			b.WriteByte('P')
		}
	}
	return b.String()
}

// Compact draws what is within radius moves of the player, in a form made for a policy that starts from nothing:
// one character a cell, row by row from the top, no separators, the player in the middle and '#' outside the map. Every
// drawing of one radius has [compactCells] characters, and a place relative to the player is always at the same one.
// With a radius of at least MaxSteps nothing that the player could reach in time is left out.
func (e *Episode) Compact(radius int) string {
	row, col := e.at/e.lake.Size, e.at%e.lake.Size
	b := make([]byte, 0, compactCells(radius))
	for y := -radius; y <= radius; y++ {
		width := radius - max(y, -y)
		for x := -width; x <= width; x++ {
			r, c := row+y, col+x
			if r < 0 || c < 0 || r >= e.lake.Size || c >= e.lake.Size {
				b = append(b, '#')
				continue
			}
			b = append(b, byte(e.lake.Cells[r*e.lake.Size+c]))
		}
	}
	return string(b)
}

// compactCells is the number of cells within radius moves of a place.
func compactCells(radius int) int {
	return 2*radius*(radius+1) + 1
}
