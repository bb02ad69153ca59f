package testlog

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What Python's json.loads says, which is not what encoding/json says.
func TestReadJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want any
	}{
		{`{"a": [1, -2.5e+3, NaN, Infinity, -Infinity, true, null]}`,
			map[string]any{"a": []any{1.0, -2500.0, math.NaN(), math.Inf(1), math.Inf(-1), true, nil}}},
		{` [ ] `, []any{}},
		{`{"a": 1, "a": 2}`, map[string]any{"a": 2.0}},
		{`"\u00e9\/\n\ud83d\ude00"`, "é/\n😀"},
		{`"\ud83dx"`, "\xed\xa0\xbdx"},
		{`"\ude00\ud83d\ude00"`, "\xed\xb8\x80😀"},
		{`1e999`, math.Inf(1)},
		{strings.Repeat("1", 4300) + ".0", math.Inf(1)},
		{strings.Repeat("[", 900) + strings.Repeat("]", 900), nil},
	} {
		got, err := readJSON(c.text)
		if err != nil {
			t.Errorf("readJSON(%.40s): %v", c.text, err)
		} else if diff := cmp.Diff(c.want, got, cmpopts.EquateNaNs()); c.want != nil && diff != "" {
			t.Errorf("readJSON(%.40s) (-want +got):\n%s", c.text, diff)
		}
	}
	for _, text := range []string{
		``, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `[1,]`, `[1 2]`, `01`, `1.`, `.5`, `-`, `+1`, `--Infinity`, `"a`,
		`"\x"`, `"\u12"`,
		`"\u12g4"`, "\"a\nb\"", `"a\`, `[1]]`, `tru`, `nan`, "\u00a0[]",
		strings.Repeat("1", 4301), strings.Repeat("[", 1100) + strings.Repeat("]", 1100),
	} {
		if got, err := readJSON(text); err == nil {
			t.Errorf("readJSON(%.40q) = %v, want an error", text, got)
		}
	}
}
