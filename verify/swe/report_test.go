package swe

import (
	"slices"
	"testing"
)

func TestKs(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][]int{0: nil, 1: {1}, 2: {1, 2}, 3: {1, 2, 3}, 4: {1, 2, 4}, 6: {1, 2, 4, 6},
		16: {1, 2, 4, 8, 16}} {
		if got := ks(n); !slices.Equal(got, want) {
			t.Errorf("ks(%d) = %v, want %v", n, got, want)
		}
	}
}
