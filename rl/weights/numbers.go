package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// DType is the type of a tensor's values, as safetensors names it.
type DType string

// The types that a weight can have to be merged.
const (
	Float32  DType = "F32"
	BFloat16 DType = "BF16"
	Float16  DType = "F16"
)

// size is the size of a value in bytes; 0 for a type that is only copied.
func (d DType) size() int {
	switch d {
	case Float32:
		return 4
	case BFloat16, Float16:
		return 2
	}
	return 0
}

// decode returns values as float32, which holds every value of the three types.
func (d DType) decode(data []byte) ([]float32, error) {
	size := d.size()
	if size == 0 {
		return nil, fmt.Errorf("its type is %s: only %s, %s and %s can be merged, so dequantise the base first",
			d, Float32, BFloat16, Float16)
	}
	values := make([]float32, len(data)/size)
	for i := range values {
		values[i] = d.get(data[i*size:])
	}
	return values, nil
}

func (d DType) get(data []byte) float32 {
	switch d {
	case Float32:
		return math.Float32frombits(binary.LittleEndian.Uint32(data))
	case BFloat16:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(data)) << 16)
	}
	return fromHalf(binary.LittleEndian.Uint16(data))
}

// put stores a value, rounded to the nearest, ties to even.
func (d DType) put(data []byte, v float32) {
	switch d {
	case Float32:
		binary.LittleEndian.PutUint32(data, math.Float32bits(v))
	case BFloat16:
		bits := math.Float32bits(v)
		binary.LittleEndian.PutUint16(data, uint16((bits+0x7FFF+bits>>16&1)>>16))
	default:
		binary.LittleEndian.PutUint16(data, toHalf(v))
	}
}

// fromHalf converts IEEE 754 binary16.
func fromHalf(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exponent, fraction := uint32(h>>10&0x1F), uint32(h&0x3FF)
	switch exponent {
	case 0:
		v := float32(fraction) / (1 << 24)
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1F:
		return math.Float32frombits(sign | 0x7F800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

func toHalf(v float32) uint16 {
	bits := math.Float32bits(v)
	sign := uint16(bits >> 16 & 0x8000)
	abs := math.Float32frombits(bits &^ (1 << 31))
	switch {
	case abs != abs:
		return sign | 0x7E00
	case abs >= 65520: // rounds to infinity
		return sign | 0x7C00
	case abs < 1.0/(1<<14): // subnormal, in units of 2^-24
		return sign | uint16(math.RoundToEven(float64(abs)*(1<<24)))
	}
	rounded := math.Float32bits(abs)
	rounded += 0xFFF + rounded>>13&1
	return sign | uint16(rounded>>13-112<<10)
}

func allFinite(values []float32) bool {
	return !slices.ContainsFunc(values, func(v float32) bool { return !finite(v) })
}

func finite(v float32) bool { return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) }
