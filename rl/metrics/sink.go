package metrics

import (
	"errors"
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
	out := make(map[string]float64, len(p.Values))
	for name, v := range p.Values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			out[name] = v
		}
	}
	return out
}

// Sink takes points, one a step, in the order of the steps.
type Sink interface {
	Write(p Point) error
	// Sync returns when all points are on the disk.
	Sync() error
	Close() error
}

// Sinks is several as one.
type Sinks []Sink

// Write writes to each, also when one fails.
func (s Sinks) Write(p Point) error {
	var errs []error
	for _, k := range s {
		errs = append(errs, k.Write(p))
	}
	return errors.Join(errs...)
}

// Sync syncs each.
func (s Sinks) Sync() error {
	var errs []error
	for _, k := range s {
		errs = append(errs, k.Sync())
	}
	return errors.Join(errs...)
}

// Close closes each.
func (s Sinks) Close() error {
	var errs []error
	for _, k := range s {
		errs = append(errs, k.Close())
	}
	return errors.Join(errs...)
}
