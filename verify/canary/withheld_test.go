package canary

import (
	"strings"
	"testing"

	"deepswe/verify/literal"
)

// What a test compares with literals is written down, and the literals are nowhere in its file.
func TestWithheld(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		w      Writer
		source Source
		test   string
		want   string // the test
		values []string
	}{
		{Python{}, Source{"test_a.py", []byte(`def test_a():
    """Gives 4711."""
    x = f(1)  # 4711
    assert x == 4711, "not 4711"
    if x:
        assert x == 12
    assert {"a": [1, "two"]} == g()
    assert h(x) == x
    assert not x
`)}, "test_a", `def test_a():
    """Gives it."""
    x = f(1)  # it
    assert kept_for_later(0, x)
    if x:
        assert x == 12
    assert kept_for_later(1, g())
    assert h(x) == x
    assert not x
`, []string{"4711", "{'a': [1, 'two']}"}},
		{Python{}, Source{"test_a.py", []byte(`class A(TestCase):
    def test_a(self):
        self.assertEqual(f("x", y=2), "abc")
        self.assertAlmostEqual(f(), 2.5)
        self.assertListEqual([1, 2], g())
        self.assertNotEqual(f(), 3)
`)}, "test_a", `class A(TestCase):
    def test_a(self):
        assert kept_for_later(0, f("x", y=2))
        self.assertAlmostEqual(f(), 2.5)
        assert kept_for_later(1, g())
        self.assertNotEqual(f(), 3)
`, []string{"'abc'", "[1, 2]"}},
		{JavaScript{}, Source{"a.test.js", []byte(`it('adds', async () => {
  expect(add(1, 2)).toBe(3);
  expect(await f()).to.deep.equal({ a: [1] });
  expect(g()).not.toBe(4);
  assert.strictEqual(g(), 'x', 'message');
  expect(x).toEqual(y);
});
`)}, "adds", `it('adds', async () => {
  kept_for_later(0, add(1, 2));
  kept_for_later(1, await f());
  expect(g()).not.toBe(4);
  kept_for_later(2, g());
  expect(x).toEqual(y);
});
`, []string{"3", "{'a': [1]}", "'x'"}},
		{Golang{}, Source{"a/a_test.go", []byte(`package a

func TestA(t *testing.T) {
	if got := F(); got != 31 {
		t.Errorf("got %d, want it", got)
	}
	if "x" != G() || err != nil {
		t.Fatal()
	}
}
`)}, "TestA", `package a

func TestA(t *testing.T) {
	if got := F(); !kept_for_later(0, got) {
		t.Errorf("got %d, want it", got)
	}
	if !kept_for_later(1, G()) || err != nil {
		t.Fatal()
	}
}
`, []string{"31", "'x'"}},
	} {
		set, err := New(tc.w, Options{
			Tests: []string{tc.test}, Sources: []Source{tc.source}, Record: "/tmp/record", Rand: random(1),
		})
		if err != nil || set.Canaries[0].Kind != Withheld {
			t.Fatalf("%s: %+v, %v", tc.source.Name, set.Canaries, err)
		}
		files := set.Files([]int{0})
		if got := string(files[0].Data); !strings.HasPrefix(got, tc.want) {
			t.Errorf("got\n%s\nwant\n%s", got, tc.want)
		}
		for i, want := range tc.values {
			if v, err := literal.Parse(want); err != nil || !literal.Equal(v, set.Canaries[0].Values[i]) {
				t.Errorf("%s: value %d is not %s (%v)", tc.source.Name, i, want, err)
			}
		}
		if helper := files[len(files)-1].Name; tc.source.Name == "a/a_test.go" && helper != "a/kept_for_later_a_test.go" {
			t.Errorf("the helper is in %s", helper)
		}
	}
}
