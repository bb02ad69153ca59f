package verify

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadTests(t *testing.T) {
	for name, c := range map[string]struct {
		log  string
		want map[string]bool
	}{
		"pytest": {"PASSED tests/t.py::test_a\nFAILED tests/t.py::test_b - assert 1 == 2\nSKIPPED [1] t.py:3: no\n",
			map[string]bool{"tests/t.py::test_a": true, "tests/t.py::test_b": false}},
		"pytest, parameters with spaces": {"PASSED t.py::test[a b]\nFAILED t.py::test[a c] - x - y\nFAILED t.py::test_d - x[0] - y\n" +
			"PASSED t.py::test[a - b]\nERROR t.py - no such file\nPASSED by a::b\n",
			map[string]bool{"t.py::test[a b]": true, "t.py::test[a c]": false, "t.py::test_d": false, "t.py::test[a - b]": true,
				"t.py": false}},
		"go": {"=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n--- FAIL: TestB (0.01s)\nFAIL\n",
			map[string]bool{"TestA": true, "TestB": false}},
		"cargo": {"running 2 tests\ntest t::a ... ok\ntest t::bad ... FAILED\n",
			map[string]bool{"t::a": true, "t::bad": false}},
		"unittest": {"test_a (t.T.test_a) ... ok\ntest_b (t.T.test_b) ... FAIL\n" +
			"\nFAIL: test_b (t.T.test_b)\n\nFAILED (failures=1)\n",
			map[string]bool{"test_a (t.T.test_a)": true, "test_b (t.T.test_b)": false}},
		"unittest, not verbose": {".F\n======\nFAIL: test_b (t.T.test_b)\n------\nRan 2 tests\n\nFAILED (failures=1)\n",
			map[string]bool{"test_b": false}},
		"nothing": {"make: Nothing to be done\n", map[string]bool{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, ReadTests([]byte(c.log))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
