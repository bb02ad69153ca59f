package literal

import "testing"

func TestSpelled(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		value, title string
		want         bool
	}{
		{"36", "test_three_dozen_is_thirty_six", true},
		{"36", "TestThirtySixOfThem", true},
		{"-12", "returns minus twelve", true},
		{"1215", "a thousand two hundred and fifteen", false},
		{"1215", "one thousand two hundred and fifteen", true},
		{"10", "it listens", false},
		{"6", "sixty", false},
		{"1", "one", false},
		{"2.5", "two", false},
		{`"two"`, "two", false},
	} {
		v, err := Parse(tc.value)
		if err != nil || v.Spelled(tc.title) != tc.want {
			t.Errorf("%s in %q: %v, want %v", tc.value, tc.title, v.Spelled(tc.title), tc.want)
		}
	}
}
