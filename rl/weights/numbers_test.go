package weights

import (
	"encoding/binary"
	"math"
	"testing"
)

// Every value of a short type is kept exactly. A number between two of them is rounded to the nearer one, or to the
// even one.
func TestShortTypes(t *testing.T) {
	t.Parallel()
	for _, d := range []DType{BFloat16, Float16} {
		get := func(bits int) float32 {
			return d.get(binary.LittleEndian.AppendUint16(nil, uint16(bits)))
		}
		put := func(v float32) int {
			var data [2]byte
			d.put(data[:], v)
			return int(binary.LittleEndian.Uint16(data[:]))
		}
		for bits := range 1 << 16 {
			v := get(bits)
			if math.IsNaN(float64(v)) {
				continue
			}
			if got := put(v); got != bits {
				t.Fatalf("%s: %#x is %g, which becomes %#x", d, bits, v, got)
			}
			next := get(bits + 1)
			if bits&0x7FFF == 0x7FFF || math.IsNaN(float64(next)) || math.IsInf(float64(next), 0) {
				continue
			}
			middle := float32((float64(v) + float64(next)) / 2)
			if want := bits + bits&1; put(middle) != want {
				t.Fatalf("%s: %g, between %#x and the next, becomes %#x, want %#x", d, middle, bits, put(middle), want)
			}
			if near := math.Nextafter32(middle, v); put(near) != bits {
				t.Fatalf("%s: %g, nearer to %#x, becomes %#x", d, near, bits, put(near))
			}
		}
	}
	for v, want := range map[float32]float32{65519: 65504, 65520: float32(math.Inf(1)), -1e9: float32(math.Inf(-1))} {
		if got := fromHalf(toHalf(v)); got != want {
			t.Errorf("%g becomes %g in half precision, want %g", v, got, want)
		}
	}
}
