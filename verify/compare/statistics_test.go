package compare

import (
	"math"
	"slices"
	"testing"
)

// The figures are those of scipy 1.17.1: binomtest(b, b+c, 0.5).pvalue, and 1 where no pair disagrees.
func TestMcNemarAgreesWithScipy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		b, c int
		want float64
	}{
		{0, 0, 1}, {1, 1, 1}, {5, 0, 0.0625}, {9, 3, 0.14599609375}, {12, 25, 0.04703102743951604},
		{40, 61, 0.046044066929342785}, {300, 345, 0.083105140650487}, {2000, 2200, 0.0021323556719912455},
	} {
		if got := mcNemar(c.b, c.c); math.Abs(got-c.want) > 1e-10 {
			t.Errorf("%d against %d: %v, want %v", c.b, c.c, got, c.want)
		}
	}
}

// The figures are those of scipy 1.17.1: bootstrap((x,), numpy.mean, method="percentile", n_resamples=200000, rng=1).
func TestBootstrapAgreesWithScipy(t *testing.T) {
	t.Parallel()
	times := func(n int, v float64) []float64 { return slices.Repeat([]float64{v}, n) }
	for name, c := range map[string]struct {
		x         []float64
		low, high float64
		step      float64 // the smallest difference of two means, by which rounding may move a quantile
	}{
		"first attempts": {slices.Concat(times(12, 1), times(5, -1), times(33, 0)), -0.02, 0.3, 1. / 50},
		"several attempts": {
			slices.Concat(times(20, .25), times(7, -.5), times(40, 0), times(3, 1), times(5, .75)), 0.036667, 0.186667, .25 / 75,
		},
		"few tasks": {[]float64{1, 0, 0, -1, .5, 0, 0, 0, .25, 1}, -0.175, 0.5, .25 / 10},
		"many tasks": {
			slices.Concat(times(70, 1), times(45, -1), times(60, .25), times(50, -.25), times(275, 0)), 0.012, 0.098, .001,
		},
	} {
		low, high := bootstrap(c.x)
		if math.Abs(low-c.low) > c.step+1e-6 || math.Abs(high-c.high) > c.step+1e-6 {
			t.Errorf("%s: %v to %v, want %v to %v", name, low, high, c.low, c.high)
		}
		if again, _ := bootstrap(c.x); again != low {
			t.Errorf("%s: another time, %v is %v", name, low, again)
		}
	}
	if low, high := bootstrap(times(9, .5)); low != .5 || high != .5 {
		t.Errorf("equal differences: %v to %v", low, high)
	}
}
