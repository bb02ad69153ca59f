package canary

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"deepswe/env/dataset/bugs"
	"deepswe/verify/literal"
)

// A withheld test records what it would compare with literals, and none of the literals is left in its file.
func TestWithheld(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		w      Writer
		source Source
		test   string
		want   string // how the test begins once it is withheld
		values []string
	}{
		{Python{}, Source{"test_a.py", []byte(`def test_a():
    """Gives 4711."""
    x = f(1)  # 4711
    assert x == 4711, "not 4711"
    assert {"a": [1, "two"]} == g()
`)}, "test_a", `def test_a():
    """ """
    x = f(1)
    assert kept_for_later(0, x)
    assert kept_for_later(1, g())
`, []string{"4711", "{'a': [1, 'two']}"}},
		{Python{}, Source{"test_a.py", []byte(`class A(TestCase):
    def test_a(self):
        self.assertEqual(f("x", y=2), "abc")
        self.assertListEqual([1, 23], g())
`)}, "test_a", `class A(TestCase):
    def test_a(self):
        assert kept_for_later(0, f("x", y=2))
        assert kept_for_later(1, g())
`, []string{"'abc'", "[1, 23]"}},
		{JavaScript{}, Source{"b.test.js", []byte(`it('adds', async () => {
  expect(add(1, 2)).toBe(3);
  expect(await f()).to.deep.equal({ a: [1] });
  assert.strictEqual(g(), 'x', 'message');
});
`)}, "adds", `it('adds', async () => {
  kept_for_later(0, add(1, 2));
  kept_for_later(1, await f());
  kept_for_later(2, g());
});
`, []string{"3", "{'a': [1]}", "'x'"}},
		{Golang{}, Source{"a/a_test.go", []byte(`package a

func TestA(t *testing.T) {
	if got := F(); got != 31 {
		t.Errorf("got %d, want 31", got)
	}
	if "x" != G() || err != nil {
		t.Fatal()
	}
	assert.Equal(t, 2.5, h(1))
}
`)}, "TestA", `package a

func TestA(t *testing.T) {
	if got := F(); !kept_for_later(0, got) {
		t.Errorf("%d", got)
	}
	if !kept_for_later(1, G()) || err != nil {
		t.Fatal()
	}
	assert.True(t, kept_for_later(2, h(1)))
}
`, []string{"31", "'x'", "2.5"}},
		{Golang{}, Source{"a/a_test.go", []byte(`package a

func TestA(t *testing.T) {
	if got := M(); !reflect.DeepEqual(got, map[string]int{"a": 11, "b": -2}) {
		t.Errorf("got %v", got)
	}
}
`)}, "TestA", `package a

func TestA(t *testing.T) {
	if got := M(); !kept_for_later(0, got, reflect.DeepEqual(map[string]int{}, map[string]int{})) {
		t.Errorf("%v", got)
	}
}
`, []string{"{'b': -2, 'a': 11}"}},
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
			if v, err := literal.Parse(want); err != nil || !literal.Equal(v, set.Canaries[0].Values[i].Value) {
				t.Errorf("%s: value %d is not %s (%v)", tc.source.Name, i, want, err)
			}
		}
		if helper := files[len(files)-1].Name; tc.source.Name == "a/a_test.go" && helper != "a/kept_for_later_a_test.go" {
			t.Errorf("the helper is in %s", helper)
		}
	}
}

// Nothing is withheld if the test has other checks, which might be the ones that fail without a fix.
func TestNothingIsWithheldBesideOtherChecks(t *testing.T) {
	t.Parallel()
	python := func(check string) Source {
		return Source{"test_a.py", []byte("def test_a():\n    assert f(1) == 4711\n    " + check + "\n")}
	}
	golang := func(check string) Source {
		return Source{"a_test.go", []byte("package a\n\nfunc TestA(t *testing.T) {\n\tif F() != 31 {\n\t\tt.Error()\n\t}\n\t" +
			check + "\n}\n")}
	}
	javascript := func(check string) Source {
		return Source{"a.test.js", []byte("it('adds', () => {\n  expect(add(1, 2)).toBe(3);\n  " + check + "\n});\n")}
	}
	for _, tc := range []struct {
		w      Writer
		test   string
		source Source
	}{
		{Python{}, "test_a", python("assert h(x) == x")},
		{Python{}, "test_a", python("if x:\n        assert x == 12")},
		{Python{}, "test_a", python("self.assertNotEqual(f(), 3)")},
		{Python{}, "test_a", python("with pytest.raises(ValueError):\n        f()")},
		{Python{}, "test_a", python("check_all(f)")},
		{Python{}, "test_a", python("same(f(2), 12)")},
		{Python{}, "test_a", python("for x in 1, 2:\n        assert f(x) == 12")},
		{Python{}, "test_a", Source{"test_a.py", []byte("@pytest.mark.parametrize('x', [1, 2])\ndef test_a(x):\n    assert f(x) == 4711\n")}},
		{Golang{}, "TestA", golang("for _, x := range xs {\n\t\tif F(x) != 12 {\n\t\t\tt.Error()\n\t\t}\n\t}")},
		{Golang{}, "TestA", golang("is := func(x int) {\n\t\tif F(x) != 12 {\n\t\t\tt.Error()\n\t\t}\n\t}\n\tis(1)")},
		{Golang{}, "TestA", golang("if F() < 3 {\n\t\tt.Error()\n\t}")},
		{Golang{}, "TestA", golang("check(t, F())")},
		{Golang{}, "TestA", golang("for _, tt := range all {\n\t\tif F() != tt.want {\n\t\t\tt.Error()\n\t\t}\n\t}")},
		{Golang{}, "TestA", golang("x := 4\n\tif F() != x {\n\t\tt.Error()\n\t}\n\tx = 5")},
		{Golang{}, "TestA", golang("x := \"4\"\n\tif F(x) != x {\n\t\tt.Error()\n\t}")},
		{Golang{}, "TestA", golang("t.Run(\"x\", func(s *testing.T) { s.Error() })")},
		{Golang{}, "TestA", golang("if err == nil {\n\t\tt.Fatal()\n\t}")},
		{JavaScript{}, "adds", javascript("expect(g()).not.toBe(4);")},
		{JavaScript{}, "adds", javascript("assert.throws(() => g());")},
		{JavaScript{}, "adds", javascript("same(g(), 12);")},
		{JavaScript{}, "adds", javascript("for (const x of xs) expect(g(x)).toBe(12);")},
		{JavaScript{}, "adds", javascript("xs.forEach((x) => { expect(g(x)).toBe(12); });")},
	} {
		set, err := New(tc.w, Options{
			Tests: []string{tc.test}, Sources: []Source{tc.source}, Record: "/tmp/record", Rand: random(1),
		})
		if err != nil || set.Canaries[0].Kind == Withheld {
			t.Errorf("%s: %+v, %v", tc.source.Data, set.Canaries, err)
		}
	}
}

// Values that code often returns prove nothing, so a test is not withheld if it expects only these.
func TestNothingCommonIsWithheld(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		w      Writer
		test   string
		source Source
	}{
		{Python{}, "test_a", Source{"test_a.py", []byte("def test_a():\n    assert f(1) == [0]\n    assert g() == None\n")}},
		{Golang{}, "TestA", Source{"a_test.go", []byte("package a\n\nfunc TestA(t *testing.T) {\n\tif F() != true {\n\t\tt.Error()\n\t}\n}\n")}},
		{JavaScript{}, "adds", Source{"a.test.js", []byte("it('adds', () => {\n  expect(add()).toEqual({});\n});\n")}},
	} {
		set, err := New(tc.w, Options{
			Tests: []string{tc.test}, Sources: []Source{tc.source}, Record: "/tmp/record", Rand: random(1),
		})
		if err != nil || set.Canaries[0].Kind == Withheld {
			t.Errorf("%s: %+v, %v", tc.source.Data, set.Canaries, err)
		}
	}
}

// The code that is added to Go tests compiles in modules that ask for an old version of Go.
func TestWithheldInOldGo(t *testing.T) {
	t.Parallel()
	text := "package a\n\nfunc TestA(t *testing.T) {\n\tif F() != 31 {\n\t\tt.Fatal()\n\t}\n}\n"
	source := Source{"a_test.go", []byte(text)}
	set, err := New(Golang{}, Options{
		Tests: []string{"TestA"}, Sources: []Source{source}, Record: "/tmp/record", Rand: random(1),
	})
	if err != nil {
		t.Fatal(err)
	}
	files := set.Files([]int{0})
	fset := token.NewFileSet()
	helper, err := parser.ParseFile(fset, "helper_test.go", files[len(files)-1].Data, 0)
	if err != nil {
		t.Fatal(err)
	}
	config := types.Config{GoVersion: "go1.1", FakeImportC: true, Error: func(err error) {
		if strings.Contains(err.Error(), "requires go") {
			t.Error(err)
		}
	}}
	_, _ = config.Check("a", fset, []*ast.File{helper}, nil) // its imports cannot be found, which is no error here
}

// What a test to fix expects is not withheld if it can be read elsewhere. It gives itself away if a data file contains
// it, or another test that has the same input. The inputs of the test itself do not count.
func TestInSight(t *testing.T) {
	t.Parallel()
	const test = "def test_a():\n    assert f('3 dozen') == 36\n"
	for _, tc := range []struct {
		w    Writer
		test string
		more Source
		want Kind
	}{
		{Python{}, test, Source{"other.py", []byte("N = 37\n")}, Withheld},
		{Python{}, test, Source{"other.py", []byte("N = 0x24\n")}, Expectation},
		{Python{}, test, Source{"a.json", []byte(`{"dozens": {"n": 36}}`)}, Telling},
		{Python{}, test, Source{"known.py", []byte("KNOWN = {'3 dozen': 36}\n")}, Telling},
		{Python{}, "def test_a():\n    x = 'abc'\n    assert f(x) == 'abc'\n", Source{}, Withheld},
		{either{JavaScript{}, Shell{}}, "it('test_a', () => {\n  expect(f('3 dozen')).toBe(36);\n});\n",
			Source{"a.snap", []byte("36\n")}, Telling},
	} {
		name := map[bool]string{true: "test_a.py", false: "a.test.js"}[strings.HasPrefix(tc.test, "def")]
		set, err := New(tc.w, Options{
			Tests: []string{"test_a"}, Fixes: 1, Sources: []Source{{name, []byte(tc.test)}, tc.more}, Record: "/tmp/36-abc",
			Rand: random(1),
		})
		if err != nil || set.Canaries[0].Kind != tc.want {
			t.Errorf("%s beside %s: %+v, %v, want %s", tc.test, tc.more.Data, set.Canaries, err, tc.want)
		}
	}
}

// A test's own inputs do not give away what it expects, whether that is withheld or made wrong.
func TestInputsDoNotTell(t *testing.T) {
	t.Parallel()
	const python = "def test_smallest():\n    assert smallest([25, 22, 17]) == 17\n"
	const shell = "test_smallest() {\n\tequal 17 \"$(smallest 25 22 17)\"\n}\n"
	for _, tc := range []struct {
		w            Writer
		source       Source
		record, said string
		want         Kind
	}{
		{Python{}, Source{"test_a.py", []byte(python)}, "/tmp/record", "", Withheld},
		{Python{}, Source{"test_a.py", []byte(python)}, "", "", Expectation},
		{Python{}, Source{"test_a.py", []byte(python)}, "", "    smallest([17, 25]) # 17\n    assert 17 > smallest([4])\n", Telling},
		{Shell{}, Source{"test.sh", []byte(shell)}, "", "", Expectation},
	} {
		tc.source.Data = append(tc.source.Data, tc.said...)
		set, err := New(tc.w, Options{
			Tests: []string{"test_smallest"}, Fixes: 1, Sources: []Source{tc.source}, Rand: random(1), Record: tc.record,
		})
		if err != nil || set.Canaries[0].Kind != tc.want {
			t.Errorf("%s%s: %+v, %v, want %s", tc.source.Data, tc.record, set.Canaries, err, tc.want)
		}
	}
}

// For most bundled tasks, neither the expectations nor what is wrong about them can be read elsewhere in the tests.
func TestBundledTasksTellNothing(t *testing.T) {
	t.Parallel()
	const most = 100
	tasks, told := 0, 0
	for task := range bugs.Tasks() {
		if tasks++; tasks > most {
			break
		}
		var sources []Source
		for name, text := range task.Tests.Files {
			sources = append(sources, Source{name, []byte(text)})
		}
		set, err := New(Shell{}, Options{
			Tests: task.Tests.FailToPass, Fixes: len(task.Tests.FailToPass), Sources: sources, Rand: random(uint64(tasks)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(set.Canaries, func(c Canary) bool { return c.Kind != Expectation }) {
			told++
		}
	}
	if told > most/7 {
		t.Errorf("the tests of %d of %d tasks tell what they expect", told, most)
	}
}

// If a test to fix has several expectations, the one made wrong is one that cannot be read elsewhere.
func TestWhatNothingTells(t *testing.T) {
	t.Parallel()
	source := Source{"test_a.py", []byte("def test_a():\n    assert f('2 score') == 40\n    assert f('apples') == 17\n\n\n" +
		"KNOWN = {'2 score': 40}\n")}
	for seed := range uint64(20) {
		set, err := New(Python{}, Options{
			Tests: []string{"test_a"}, Fixes: 1, Sources: []Source{source}, Rand: random(seed),
			Before: []byte("test_a.py:2: AssertionError\ntest_a.py:3: AssertionError\n"),
		})
		if err != nil || set.Canaries[0].Kind != Expectation {
			t.Errorf("seed %d: %+v, %v", seed, set.Canaries, err)
		}
	}
}

// A check does not get its value from another check just because both call the same assertion library.
func TestPlacedAmongAsserts(t *testing.T) {
	t.Parallel()
	source := Source{"/x/a.test.js", []byte("it('adds', () => {\n  assert.equal(f(7), 17);\n  assert.ok(f(8));\n" +
		"  assert.equal(f(9), 19);\n});\n")}
	for seed := range uint64(20) {
		set, err := New(JavaScript{}, Options{
			Tests: []string{"adds"}, Fixes: 1, Sources: []Source{source}, Rand: random(seed), Before: []byte("/x/a.test.js:4:10"),
		})
		if err != nil || strings.Contains(string(set.Files([]int{0})[0].Data), "f(9), 19") {
			t.Errorf("seed %d: %+v, %v", seed, set.Canaries, err)
		}
	}
}

// In a test with several checks, the wrong expectation is put where the log of a run without the fix shows the failure.
func TestPlaced(t *testing.T) {
	t.Parallel()
	const python = "def test_a():\n    assert f(7) == 17\n    n = f(8)\n    assert n == 18\n    assert f(9) < 19\n"
	for before, want := range map[string]string{
		"":                              "",
		"tests/test_a.py:2: in test_a":  "f(7) == 17",
		"tests/test_a.py:3: ValueError": "n == 18",
		`File "/x/tests/test_a.py", line 4, in test_a`: "n == 18",
	} {
		set, err := New(Python{}, Options{
			Tests: []string{"test_a"}, Fixes: 1, Sources: []Source{{"/x/tests/test_a.py", []byte(python)}}, Rand: random(1),
			Before: []byte(before),
		})
		if err != nil {
			t.Fatal(err)
		}
		placed := set.Canaries[0].Kind == Expectation
		changed := string(set.Files([]int{0})[0].Data)
		if placed != (want != "") || want != "" && strings.Contains(changed, want) {
			t.Errorf("%q: %s\n%s", before, set.Canaries[0].Kind, changed)
		}
	}
}
