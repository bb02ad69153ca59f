package metrics

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Point is the numbers of one step. Names are paths, as in reward/mean; [Describe] knows the usual ones.
type Point struct {
	Step   int
	Time   time.Time
	Values map[string]float64
}

// finite drops what no sink can hold: NaN and infinity have no JSON, and a curve has no place for them.
func (p Point) finite() map[string]float64 {
	out := maps.Clone(p.Values)
	maps.DeleteFunc(out, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	return out
}

// Last returns the last value of a metric, and whether there is one.
func Last(points []Point, name string) (float64, bool) {
	for _, p := range slices.Backward(points) {
		if v, ok := p.Values[name]; ok {
			return v, true
		}
	}
	return 0, false
}

// Sink takes the points of a run to where people look at them. A [Feed] calls it, from one goroutine.
type Sink interface {
	// Send delivers points: one for each step, in order, but for those of a validation that ran during training, which
	// come after points of later steps and have other metrics. After an error it is called again with the same points,
	// which are then not to count twice.
	Send(ctx context.Context, points []Point) error
	// Close tells why the run ended: cause is nil if it is done.
	Close(ctx context.Context, cause error) error
}

// Target is a place that has a sink for every run.
type Target struct {
	// Name is for messages.
	Name string
	// Replay says that the points before a resumed run's last checkpoint are sent again: what is there is completed.
	Replay bool
	// Open makes the sink of a run. It does not connect.
	Open func(r Run) Sink
}

// Run is what a sink is told about a run.
type Run struct {
	Project, Name string
	// Label is its name among the runs of this process.
	Label string
	// ID tells runs of the same name apart, and is the same after a resume.
	ID string
	// Created is when the run began, and Begun when this process went on with it.
	Created, Begun time.Time
	// Config is shown beside the curves. It must be possible to encode its values as JSON.
	Config map[string]any
}

// key is the ID in letters and digits that every sink takes.
func (r Run) key() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(r.ID)))[:16] }

// had is the last step of each metric that a sink has. A metric's points come in the order of their steps.
type had map[string]int

// news returns the values of a point that the sink does not have yet, under its names for them, and records them.
func (h had) news(p Point, spell func(string) string) map[string]float64 {
	values := map[string]float64{}
	for name, v := range p.finite() {
		name = spell(name)
		if last, ok := h[name]; !ok || p.Step > last {
			h[name], values[name] = p.Step, v
		}
	}
	return values
}
