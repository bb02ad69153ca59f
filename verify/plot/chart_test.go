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
		0: "0", 1: "1", 160: "160", 0.5: "0.500", 0.01234: "0.0123", 1e-5: "1.00e-05", 12.345: "12.35", 123.456: "123.5",
		-2.5: "-2.500", 1234567: "1.23e+06",
	} {
		if got := Number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{
		0.5: "0.5", 0.25: "0.25", 1e-5: "1e-5", -2.5e-5: "-2.5e-5", 1e-10: "1e-10", 2e6: "2e6", 100: "100", 2.5: "2.5", 0: "0",
	} {
		if got := Short(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
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
