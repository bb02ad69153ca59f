package canary

import (
	"regexp"
	"strings"
	"testing"
)

// A literal that a test repeats gets another value, the same at each place. Nothing else changes.
func TestVariants(t *testing.T) {
	t.Parallel()
	const data = "def test_other():\n    assert f('alpha') == 'alpha'\n\n\n" +
		"def test_a():\n    read(mode='once', name='read')\n    assert f('alpha.beta', 47, 9, 'read') == {'beta': 47}\n"
	set, err := New(Python{}, Options{
		Tests: []string{"test_a"}, Sources: []Source{{"test_a.py", []byte(data)}}, Variants: true, Rand: random(1),
	})
	if err != nil || set.Canaries[0].Kind != Variant {
		t.Fatalf("%+v, %v", set.Canaries, err)
	}
	got := string(set.Files([]int{0})[0].Data)
	m := regexp.MustCompile(`f\('alpha\.(\w+)', (\d\d), 9, 'read'\) == \{'(\w+)': (\d+)\}`).FindStringSubmatch(got)
	if m == nil || m[1] != m[3] || m[2] != m[4] || m[1] == "beta" || m[2] == "47" {
		t.Errorf("got\n%s", got)
	}
	if !strings.HasPrefix(got, data[:strings.Index(data, "alpha.")]) {
		t.Errorf("something else is changed:\n%s", got)
	}
	if set, err = New(Python{}, Options{
		Tests: []string{"test_a"}, Sources: []Source{{"test_a.py", []byte(data)}}, Variants: true, Rand: random(1),
		Excluded: map[string]bool{set.Canaries[0].Mutation: true},
	}); err != nil || !strings.Contains(string(set.Files([]int{0})[0].Data), "47") {
		t.Errorf("without the first mutation, want the numbers unchanged: %+v, %v", set.Canaries, err)
	}
}
