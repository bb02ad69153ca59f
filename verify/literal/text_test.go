package literal_test

import (
	"testing"

	"deepswe/verify/literal"
)

// A value is found in a text however it is written there: in digits, in words, or as an expression.
func TestIn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		value, text     string
		said, mentioned bool
	}{
		{"36", "test_dozen_is_36", true, true},
		{"36", "test_dozens36", true, true},
		{"3", "test_dozen_is_36", false, false},
		{"36", "test_three_dozen_is_thirty_six", true, true},
		{"36", "class TestThirtySixOfThem", true, true},
		{"36", "0x24", true, true},
		{"36", "it is 36.5", false, false},
		{"36.5", "it is 36.50", true, true},
		{"-12", "returns minus twelve", true, true},
		{"1215", "one thousand two hundred and fifteen", true, true},
		{"305", "three hundred five", true, true},
		{"2024", "two thousand twenty-four", true, true},
		{"1200", "1_200 or 1,200", true, true},
		{"200", "[1,200]", true, true},
		{"10", "it listens", false, false},
		{"6", "sixty", false, false},
		{"'Monday'", "test_the_first_is_monday", true, true},
		{"'red'", "TestNameRed", true, true},
		{"'HTTP server'", "HTTPServer", true, true},
		{"'three dozen'", "row('3 Dozens')", true, true},
		{"'three dozen'", "a dozen, three times", false, true},
		{"'café'", `"caf\xe9"`, true, true},
		{"'café'", "cafe\u0301", true, true},
		{"'C:new'", `"C:\\new"`, true, true},
		{"'2024-03-01'", "date(2024, 3, 1)", true, true},
		{"['dozen', 36]", "a dozen is 36", true, true},
		{"'doz'", "a dozen is 36", false, false},
		{"'+'", "anything", true, true},
		{"36", "3 * 12", true, true},
		{"31", "1 + 2*3*5", true, true},
		{"1024", "1<<10", true, true},
		{"2021", "2024-03-01", false, false},
		{"36.5", "36,5 kg", true, true},
		{"36", "\uff13\uff16", true, true},
		{"40", "\u0664\u0660", true, true},
		{"'monday'", `"mon" + "day"`, true, false},
		{"'ground floor'", "test_groundfloor", true, false},
		{"'state'", "a statement", false, false},
		{"'two lines'", "two\\nlines", true, true},
	} {
		v, err := literal.Parse(tc.value)
		if err != nil {
			t.Fatal(err)
		}
		text := literal.Read(tc.text)
		if said, mentioned := v.In(text), v.Mentioned(text); said != tc.said || mentioned != tc.mentioned {
			t.Errorf("%s in %q, read as %q: said %v, mentioned %v, want %v, %v", tc.value, tc.text, text, said,
				mentioned, tc.said, tc.mentioned)
		}
		if !v.Common() && tc.said && tc.mentioned && tc.value != "'+'" && v.In(text.Without(v)) && tc.value[0] != '[' {
			t.Errorf("%s is still in %q", tc.value, text.Without(v))
		}
	}
}
