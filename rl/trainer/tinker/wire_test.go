package tinker

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

// A null is a number that JSON does not have, never 0.
func TestNullIsNotANumber(t *testing.T) {
	t.Parallel()
	var f floats
	if err := json.Unmarshal([]byte(`[ -0.5, null,-0.0 ,1e-3]`), &f); err != nil {
		t.Fatal(err)
	}
	if len(f) != 4 || f[0] != -0.5 || !math.IsNaN(f[1]) || f[2] != 0 || f[3] != 1e-3 || f.finite() {
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

// Servers write times without a zone.
func TestNaiveTimes(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 11, 22, 1, 7, 31, 912804000, time.UTC)
	for _, text := range []string{
		`"2026-11-22T01:07:31.912804"`, `"2026-11-22T01:07:31.912804Z"`, `"2026-11-22T02:07:31.912804+01:00"`,
	} {
		var s stamp
		if err := json.Unmarshal([]byte(text), &s); err != nil || !time.Time(s).Equal(want) {
			t.Errorf("%s is %v, %v", text, time.Time(s), err)
		}
	}
	var s stamp
	if err := json.Unmarshal([]byte(`"yesterday"`), &s); err == nil {
		t.Error("a time that is none was read")
	}
}
