package testlog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mochaRun10 is a run of Mocha 10, in which suites give titles of two lines in the list of failures.
const mochaRun10 = `
  join
    ✔ joins words
    1) joins words split

  split
    ✔ reads 2 words of a "b c" (12ms)
    2) reads 3 words of a b c
    - reads nothing


  2 passing (23ms)
  1 pending
  2 failing

  1) join
       joins words split:

      AssertionError: expected 'a b' to equal 'a c'

  2) split
       reads 3 words of a b c:
     Error: 6 is not 7
`

const jestRun29 = `
FAIL __tests__/money.test.js
  money
    ✓ shows two decimals (3 ms)
    ✕ rounds half a cent up (1 ms)
`

func TestThorough(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ parser, log, plain, thorough string }{
		{
			"swe_rebench_v2/parse_log_js", mochaRun10,
			"PASSED joins words\nPASSED reads 2 words of a \"b c\"\n",
			"PASSED joins words\nPASSED reads 2 words of a \"b c\"\n" +
				"FAILED joins words split\nFAILED reads 3 words of a b c\nFAILED join\nFAILED split\n",
		},
		{
			"swe_rebench_v2/parse_log_js_4", jestRun29,
			"PASSED shows two decimals\n", "PASSED shows two decimals\nFAILED rounds half a cent up\n",
		},
		{
			"swe_rebench_v2/parse_log_js", "  ✔ adds\n  1) adds\n", // one of two tests that share a title
			"PASSED adds\n", "PASSED adds\n",
		},
		{"parse_log_jest", jestRun29, "PASSED shows two decimals\nFAILED rounds half a cent up\n",
			"PASSED shows two decimals\nFAILED rounds half a cent up\n"},
	} {
		for _, reading := range []struct {
			lookup func(string) (Parser, error)
			want   string
		}{{Lookup, tc.plain}, {Thorough, tc.thorough}} {
			parse, err := reading.lookup(tc.parser)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(reading.want, describe(parse(tc.log, Task{}))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.parser, diff)
			}
		}
	}
	if _, err := Thorough("parse_log_none"); err == nil {
		t.Error("Thorough found a parser that does not exist")
	}
}
