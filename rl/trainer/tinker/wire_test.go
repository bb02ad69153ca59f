package tinker

import (
	"encoding/json"
	"math"
	"testing"
)

// A null stands for a number that JSON cannot express, and is never read as 0.
func TestNullIsNotANumber(t *testing.T) {
	t.Parallel()
	var f floats
	if err := json.Unmarshal([]byte(`[ -0.5, null,-0.0 ,1e-3]`), &f); err != nil {
		t.Fatal(err)
	}
	if len(f) != 4 || f[0] != -0.5 || !math.IsNaN(f[1]) || f[2] != 0 || f[3] != 1e-3 {
		t.Errorf("%v", f)
	}
	for _, text := range []string{`"-0.5"`, `[[1]]`, `[NaN,x]`, `{}`, `[1,,2]`} {
		if err := json.Unmarshal([]byte(text), &f); err == nil {
			t.Errorf("%s is read as %v", text, f)
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64} {
		if text, err := json.Marshal(floats{v}); err == nil {
			t.Errorf("%v is written as %s", v, text)
		}
	}
}
