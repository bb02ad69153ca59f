package report

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"deepswe/rl/metrics"
	"deepswe/verify/plot"
)

// Smoothing may change a single point by one ulp, and an axis over one ulp has no round ticks. Every mean reward that a
// first step can have must give a small drawing.
func TestAxisOverOneUlp(t *testing.T) {
	t.Parallel()
	for n := 16; n <= 512; n++ {
		for k := range n + 1 {
			s := plot.Series{{X: 1, Y: float64(k) / float64(n)}}
			if smooth(s)[0] == s[0] && n != 16 {
				continue // the axis has no range, as in the cases with n = 16
			}
			drawn := plot.Draw(plot.Chart{Lines: []plot.Line{{Points: s, Faint: true}, {Points: smooth(s)}}})
			if len(drawn) != 1 || strings.Count(string(drawn[0]), `class="grid"`) > 8 {
				t.Fatalf("mean %d/%d: %.300s", k, n, drawn)
			}
		}
	}
}

// FuzzChart draws curves of arbitrary values, and checks that the number of grid lines stays small.
func FuzzChart(f *testing.F) {
	f.Add(binary.LittleEndian.AppendUint64(nil, math.Float64bits(7.0/64)), false)
	f.Add(binary.LittleEndian.AppendUint64(make([]byte, 8), math.Float64bits(1<<60)), true)
	f.Fuzz(func(t *testing.T, raw []byte, zero bool) {
		var points []metrics.Point
		for i := 0; i+8 <= len(raw) && i < 64; i += 8 {
			v := math.Float64frombits(binary.LittleEndian.Uint64(raw[i:]))
			points = append(points, metrics.Point{Step: i, Values: map[string]float64{"x": v}})
		}
		for _, svg := range plot.Draw(plot.Chart{Zero: zero, Lines: []plot.Line{{Points: collect(points)["x"]}}}) {
			if n := strings.Count(string(svg), `class="grid"`); n < 1 || n > 12 {
				t.Errorf("%d grid lines: %.300s", n, svg)
			}
			wellFormed(t, string(svg))
		}
	})
}
