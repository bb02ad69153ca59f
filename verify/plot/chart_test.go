package plot

import (
	"fmt"
	"math"
	"testing"
)

func TestTicksAreRound(t *testing.T) {
	t.Parallel()
	for _, span := range []float64{1e-9, 0.013, 0.8, 1, 3, 7, 99, 160, 12345, 6e7} {
		step := tick(span)
		mantissa := step / math.Pow(10, math.Floor(math.Log10(step)+1e-9))
		ok := false
		for _, m := range []float64{1, 2, 2.5, 5} {
			ok = ok || math.Abs(mantissa-m) < 1e-6
		}
		if n := span / step; !ok || n < 1.9 || n > 5.1 {
			t.Errorf("a range of %g has ticks of %g", span, step)
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 1: "1", 160: "160", 0.5: "0.500", 0.01234: "0.0123", 1e-5: "1.00e-05", 12.345: "12.3", 123.456: "123",
		-2.5: "-2.50", 2.4849: "2.48", 1234567: "1.23e+06",
	} {
		if got := Number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{
		0.5: "0.5", 0.25: "0.25", 1e-5: "1e-5", -2.5e-5: "-2.5e-5", 1e-10: "1e-10", 2e6: "2e6", 100: "100", 2.5: "2.5",
		0: "0", 1002.5: "1002.5",
	} {
		if got := Short(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

func TestCountsAndDurations(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 7: "7", 999: "999", 999.6: "1k", 1250: "1.25k", 11000: "11k", 31_600_000: "31.6M", 2.5e9: "2.5G",
	} {
		if got := Count(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	for seconds, want := range map[float64]string{
		0: "0s", .0622: "62ms", 9.46: "9.5s", 155: "2m35s", 3720: "1h02m",
	} {
		if got := Duration(seconds); got != want {
			t.Errorf("%v seconds: %s, want %s", seconds, got, want)
		}
	}
}

func ExampleSparkline() {
	fmt.Println(Sparkline([]float64{1, 2, 3, 4, 5, 6, 7, 8}, 8))
	fmt.Println(Sparkline([]float64{0, 0, 1, 1}, 2))
	// Output:
	// ▁▂▃▄▅▆▇█
	// ▁█
}
