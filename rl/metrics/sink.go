package metrics

import (
	"errors"
	"maps"
	"math"
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

// Sink takes points, one for each step, in order. If validation runs during training, its results are a separate point,
// which may come after those of later steps and has other metrics.
type Sink interface {
	Write(p Point) error
	// Sync returns when all points are on the disk.
	Sync() error
	Close() error
}

// Sinks is several as one. When one fails, the others are called as well.
type Sinks []Sink

// Write writes to each.
func (s Sinks) Write(p Point) error { return s.each(func(k Sink) error { return k.Write(p) }) }

// Sync syncs each.
func (s Sinks) Sync() error { return s.each(Sink.Sync) }

// Close closes each.
func (s Sinks) Close() error { return s.each(Sink.Close) }

func (s Sinks) each(do func(Sink) error) error {
	var errs []error
	for _, k := range s {
		errs = append(errs, do(k))
	}
	return errors.Join(errs...)
}
