package canary

import (
	"cmp"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"deepswe/env/testkit"
)

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// The archives hold files of tests, the ids of some of them, and what planting their twins makes of it.
func TestPlant(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var o Options
			var parser string
			in := txtar.Archive{Comment: a.Comment}
			for _, f := range a.Files {
				switch {
				case f.Name == "parser":
					parser = strings.TrimSpace(string(f.Data))
				case f.Name == "tests":
					o.Tests = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
				case strings.HasPrefix(f.Name, "want"):
					continue
				default:
					o.Sources = append(o.Sources, Source{f.Name, f.Data})
				}
				in.Files = append(in.Files, f)
			}
			w, ok := ForParser(parser)
			if !ok {
				t.Fatalf("no writer for %q", parser)
			}
			o.Rand = random(7)
			p, err := Plant(w, o)
			var says strings.Builder
			if err != nil {
				fmt.Fprintln(&says, "error:", err)
			}
			for _, twin := range p.Twins {
				fmt.Fprintf(&says, "%s: %s of %s\n", twin.Name, twin.Kind, twin.Test)
			}
			for _, id := range o.Tests {
				if reason := p.Skipped[id]; reason != "" {
					fmt.Fprintf(&says, "%s: %s\n", id, reason)
				}
			}
			in.Files = append(in.Files, txtar.File{Name: "want", Data: []byte(says.String())})
			for _, f := range p.Files {
				in.Files = append(in.Files, txtar.File{Name: "want " + f.Name, Data: f.Data})
				checkAgain(t, w, f, p)
			}
			testkit.Golden(t, file, txtar.Format(&in))
		})
	}
}

// checkAgain reads a file with twins, in which every test and every twin has to be found.
func checkAgain(t *testing.T, w Writer, f Source, p Result) {
	t.Helper()
	if strings.HasSuffix(f.Name, ".go") {
		if _, err := parser.ParseFile(token.NewFileSet(), f.Name, f.Data, 0); err != nil {
			t.Errorf("with twins, %v", err)
		}
	}
	s, err := w.parse(f)
	if err != nil {
		t.Fatalf("with twins, %s: %v", f.Name, err)
	}
	for _, twin := range p.Twins {
		if twin.File != f.Name {
			continue
		}
		_, ok := s.find(twin.Test)
		if g, may := s.(generator); may && !ok {
			_, ok = g.generates(twin.Test)
		}
		if !ok {
			t.Errorf("the test %s is gone", twin.Test)
		}
		if _, ok := s.find(strings.ReplaceAll(twin.Test, twin.Original, twin.Name)); !ok && strings.Contains(twin.Test,
			twin.Original) {
			t.Errorf("the twin %s is not found", twin.Name)
		}
	}
}

// What is changed does not depend on chance, names and places do.
func TestPlantIsRandom(t *testing.T) {
	t.Parallel()
	source := Source{"tests/test_a.py", []byte("def test_one():\n    assert f(1) == 2\n\n\ndef test_two():\n    assert g() == 'x'\n")}
	names, texts := map[string]bool{}, map[string]bool{}
	for seed := range uint64(20) {
		p, err := Plant(Python{}, Options{Tests: []string{"tests/test_a.py::test_one"}, Sources: []Source{source},
			Rand: random(seed)})
		if err != nil || len(p.Twins) != guesses {
			t.Fatalf("%d twins, %v", len(p.Twins), err)
		}
		var mutations []string
		for _, twin := range p.Twins {
			names[twin.Name] = true
			mutations = append(mutations, twin.Mutation)
		}
		mutations = slices.Compact(mutations)
		if want := []string{"tests/test_a.py:test_one:0.0", "tests/test_a.py:test_one:end"}; !slices.Equal(mutations, want) {
			t.Fatalf("mutations %q, want %q", mutations, want)
		}
		texts[string(p.Files[0].Data)] = true
	}
	if len(names) < 20 || len(texts) != 20 {
		t.Errorf("%d names, %d texts", len(names), len(texts))
	}
}

func TestPlantLeavesExcludedMutationsOut(t *testing.T) {
	t.Parallel()
	o := Options{
		Tests: []string{"TestA"}, Rand: random(1), MaxTests: 1,
		Sources: []Source{{"a_test.go", []byte("package a\n\nfunc TestA(t *testing.T) { t.Log() }\n")}},
	}
	p, err := Plant(Golang{}, o)
	if err != nil || len(p.Twins) != 2 || p.Twins[0].Mutation != p.Twins[1].Mutation { // there is one way only
		t.Fatal(p.Twins, err)
	}
	o.Excluded = map[string]bool{p.Twins[0].Mutation: true}
	if p, err = Plant(Golang{}, o); !errors.Is(err, ErrNoTwin) || len(p.Files) > 0 {
		t.Errorf("%v, %v", p, err)
	}
}

// Among a test and its twins, the one that the others resemble most is the test no more often than chance has it.
func TestTheTypicalTestIsNoClue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		w      Writer
		test   string
		source Source
		expect *regexp.Regexp // what one version of the test expects
		real   string
	}{
		"Python": {
			Python{}, "test_one", Source{"test_a.py", []byte("def test_one():\n    a, b = f(1)\n    assert a == 20\n    assert b == 'x'\n")},
			regexp.MustCompile(`assert a == (\d+)\n +assert b == ('\w')`), "20'x'",
		},
		"unittest": {
			Python{}, "test_one", Source{"test_a.py", []byte("class A(TestCase):\n    def test_one(self):\n        self.assertTrue(f())\n" +
				"        self.assertEqual(g(), [1, 20])\n")},
			regexp.MustCompile(`self.assert(\w+)\(f\(\)\)\n +self.assertEqual\(g\(\), (.*)\)`), "True[1, 20]",
		},
		"Go": {
			Golang{}, "TestOne", Source{"a_test.go", []byte("package a\n\nfunc TestOne(t *testing.T) {\n\tif f() != 20 {\n\t\tt.Fatal()\n\t}\n" +
				"\tif g() != \"x\" {\n\t\tt.Fatal()\n\t}\n}\n")},
			regexp.MustCompile(`(?s)f\(\) != (\d+).*?g\(\) != ("\w")`), `20"x"`,
		},
		"JavaScript": {
			JavaScript{}, "one", Source{"a.test.js", []byte("it('one', () => {\n  expect(f()).toBe(20)\n  expect(g()).toEqual('x')\n})\n")},
			regexp.MustCompile(`toBe\((\d+)\)\s+expect\(g\(\)\).toEqual\(('\w')\)`), "20'x'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const seeds = 400
			hits := 0
			for seed := range uint64(seeds) {
				p, err := Plant(tc.w, Options{Tests: []string{tc.test}, Sources: []Source{tc.source}, Rand: random(seed)})
				if err != nil || len(p.Twins) < guesses {
					t.Fatalf("%d twins, %v", len(p.Twins), err)
				}
				found := tc.expect.FindAllSubmatch(p.Files[0].Data, -1)
				if len(found) != len(p.Twins)+1 {
					t.Fatalf("found %q in\n%s", found, p.Files[0].Data)
				}
				counts := [2]map[string]int{{}, {}}
				for _, m := range found {
					counts[0][string(m[1])]++
					counts[1][string(m[2])]++
				}
				most := ""
				for _, count := range counts {
					words := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
						return cmp.Or(count[b]-count[a], strings.Compare(a, b))
					})
					most += words[0]
				}
				if most == tc.real {
					hits++
				}
			}
			if hits > seeds*20/100 {
				t.Errorf("the typical test is the real one with %d of %d times", hits, seeds)
			}
			t.Logf("%d of %d", hits, seeds)
		})
	}
}

// The real test is anywhere among its twins, and nothing in the layout tells it from them.
func TestThePlaceIsNoClue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		w      Writer
		test   string
		source Source
		expect *regexp.Regexp // what one version of the test expects, with what is left of a layout of its own
		real   string
		clue   string
	}{
		"Python": {
			Python{}, "test_one", Source{"test_a.py", []byte("def test_one():\n    assert f() == 20\n" +
				strings.Repeat("\n\ndef test_more():\n    assert g()\n", 5))},
			regexp.MustCompile(`(.?)assert f\(\) == (\d+)`), "20", "",
		},
		"Go": {
			Golang{}, "TestOne", Source{"a_test.go", []byte("package a\n\n// See #12.\nfunc TestOne(t *testing.T) {\n\tif f() != 20 {" +
				"\n\t\tt.Fatal()\n\t}\n}\n\nfunc TestB(t *testing.T) {}\n\nfunc TestC(t *testing.T) {}\n")},
			regexp.MustCompile(`(// See #12.\n|)func \w+\(t \*testing.T\) {(?:\n\tt.*\n|)\s+if f\(\) != (\d+)`), "20", "// See #12.\n",
		},
		"JavaScript": {
			JavaScript{}, "one", Source{"a.test.js", []byte("describe('all', () => {\n  it('one', () => {\n    expect(f()).toBe(20)\n  })\n" +
				strings.Repeat("\n  it('more', () => {})\n", 5) + "})\n")},
			regexp.MustCompile(`expect\(f\(\)\).toBe\((\d+)\)\s+\}\)(;?)`), "20", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const seeds = 400
			ranks, clues := map[int]int{}, 0
			for seed := range uint64(seeds) {
				p, err := Plant(tc.w, Options{Tests: []string{tc.test}, Sources: []Source{tc.source}, Rand: random(seed)})
				if err != nil || len(p.Twins) < guesses-1 {
					t.Fatalf("%d twins, %v", len(p.Twins), err)
				}
				told := 0
				for rank, m := range tc.expect.FindAllStringSubmatch(string(p.Files[0].Data), -1) {
					if slices.Contains(m[1:], tc.real) {
						ranks[rank]++
						told++
						if slices.Contains(m[1:], tc.clue) {
							clues++
						}
					}
				}
				if told == 0 {
					t.Fatalf("the test is gone from\n%s", p.Files[0].Data)
				}
			}
			for rank, hits := range ranks {
				if hits > seeds*30/100 {
					t.Errorf("of all, the real one is number %d in %d of %d files", rank, hits, seeds)
				}
			}
			if name != "Python" && clues > seeds*30/100 {
				t.Errorf("its layout tells the real one in %d of %d files", clues, seeds)
			}
			t.Logf("%v, %d", ranks, clues)
		})
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()
	p := Result{Exchanges: []Exchange{{Test: "test_sum", Twin: "test_sum_twice"}, {Test: "TestA", Twin: "TestAll"},
		{Test: "adds", Twin: "adds again"}}}
	for _, tc := range []struct {
		w        Writer
		reported string
		want     string
	}{
		{Python{}, "tests/test_sum.py::C::test_sum_twice[a-[1]]", "tests/test_sum.py::C::test_sum[a-[1]]"},
		{Python{}, "tests/test_sum.py::C::test_sum", "tests/test_sum.py::C::test_sum_twice"},
		{Python{}, "C.test_sum", "C.test_sum_twice"},
		{Python{}, "test_sum", "test_sum_twice"},
		{Python{}, "my_test_sum", "my_test_sum"},
		{Python{}, "test_sum_again", "test_sum_again"},
		{Python{}, "test_sum (app.test_sum.C.test_sum)", "test_sum_twice (app.test_sum.C.test_sum_twice)"},
		{Python{}, "test_sum_twice (app.test_sum.C)", "test_sum (app.test_sum.C)"},
		{Golang{}, "TestAll/TestA", "TestA/TestA"},
		{Golang{}, "TestA", "TestAll"},
		{Golang{}, "TestAB", "TestAB"},
		{JavaScript{}, "sums > adds again", "sums > adds"},
		{JavaScript{}, "sums adds", "sums adds again"},
		{JavaScript{}, "sums badds", "sums badds"},
	} {
		if got := p.Restore(tc.w, tc.reported); got != tc.want {
			t.Errorf("%T: Restore(%q) = %q, want %q", tc.w, tc.reported, got, tc.want)
		}
	}
}

// Cases of a test have names of their own, and tests of one name are told apart by their files where those are known.
func TestRestoreCases(t *testing.T) {
	t.Parallel()
	plant := func(w Writer, test string, s Source) Result {
		p, err := Plant(w, Options{Tests: []string{test}, Sources: []Source{s}, Rand: random(3)})
		if err != nil || len(p.Exchanges) != 1 {
			t.Fatal(p.Exchanges, err)
		}
		return p
	}
	python := plant(Python{}, "test_sum_0_empty (tests.test_a.A.test_sum_0_empty)", Source{"tests/test_a.py", []byte(
		"class A:\n    @parameterized.expand([('empty', [])])\n    def test_sum(self, _, n):\n        assert not f(n)\n")})
	each := plant(JavaScript{}, "sums > adds 1 to 2", Source{"a.test.js", []byte(
		"it.each([[1, 2]])('adds %i to %i', (a, b) => { expect(a).toBe(b) })\n")})
	same := plant(Python{}, "tests/test_a.py::test_sum", Source{"tests/test_a.py", []byte(
		"def test_sum():\n    assert f() == 1\n\n\nclass A:\n    def test_sum(self):\n        assert f() == 2\n")})
	for _, tc := range []struct {
		w    Writer
		p    Result
		test string
		twin string // with a % for the name
	}{
		{Python{}, python, "test_sum_0_empty (tests.test_a.A.test_sum_0_empty)", "%_0_empty (tests.test_a.A.%_0_empty)"},
		{JavaScript{}, each, "sums > adds 1 to 2", "sums > % 1 to 2"},
		{Python{}, same, "tests/test_a.py::test_sum", "tests/test_a.py::%"},
		{Python{}, same, "tests/test_a.py::A::test_sum", "tests/test_a.py::A::%"},
	} {
		twin := strings.ReplaceAll(tc.twin, "%", tc.p.Exchanges[0].Twin)
		if a, b := tc.p.Restore(tc.w, tc.test), tc.p.Restore(tc.w, twin); a != twin || b != tc.test {
			t.Errorf("%q becomes %q, %q becomes %q", tc.test, a, twin, b)
		}
	}
	for _, other := range each.Twins {
		name := "sums > " + other.Name + " 1 to 2"
		if got := each.Restore(JavaScript{}, name); other.Name != each.Exchanges[0].Twin && got != name {
			t.Errorf("another twin, %q, becomes %q", name, got)
		}
	}
	if got := each.Restore(JavaScript{}, "adds nothing"); got != "adds nothing" {
		t.Errorf("another title becomes %q", got)
	}
	if got := same.Restore(Python{}, "tests/test_b.py::test_sum"); got != "tests/test_b.py::test_sum" {
		t.Errorf("a test of another file becomes %q", got)
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	twin := Twin{Name: "test_sum_twice", Original: "test_sum"}
	for name, want := range map[string]bool{
		"tests/a.py::test_sum_twice[1-2]": true, "test_sum_twice (a.B)": true, "test_sum_twice_0_x": true,
		"tests/a.py::test_sum": false, "tests/a.py::my_test_sum_twice": false, "": false,
	} {
		if got := twin.Reports(name); got != want {
			t.Errorf("Reports(%q) = %v", name, got)
		}
	}
	if got := twin.Counterpart("a.py::test_sum_twice[1]"); got != "a.py::test_sum[1]" {
		t.Errorf("Counterpart = %q", got)
	}
}

func TestWiden(t *testing.T) {
	t.Parallel()
	twins := []Twin{{Name: "test_b_twice", Original: "test_b"}, {Name: "TestAll", Original: "TestOne"},
		{Name: "adds again", Original: "adds"}}
	for script, want := range map[string][]string{
		"pytest -rA tests\n":               {"pytest -rA tests\n"},
		"pytest a.py::C::test_b x\n":       {"pytest a.py::C::test_b a.py::C::test_b_twice x\n", "pytest a.py::C::test_b_twice a.py::C::test_b x\n"},
		"pytest 'a.py::test_b[1]'\n":       {"pytest 'a.py::test_b[1]' 'a.py::test_b_twice[1]'\n", "pytest 'a.py::test_b_twice[1]' 'a.py::test_b[1]'\n"},
		"pytest -k 'test_b and not x'\n":   {"pytest -k '(test_b or test_b_twice) and not x'\n", "pytest -k '(test_b_twice or test_b) and not x'\n"},
		"./runtests.py app.tests.C.test_b": {"./runtests.py app.tests.C.test_b app.tests.C.test_b_twice", "./runtests.py app.tests.C.test_b_twice app.tests.C.test_b"},
		"go test -run '^TestOne$' .\n":     {"go test -run '^(TestOne|TestAll)$' .\n", "go test -run '^(TestAll|TestOne)$' .\n"},
		"npx jest -t 'adds'\n":             {"npx jest -t '(adds|adds again)'\n", "npx jest -t '(adds again|adds)'\n"},
	} {
		if got := Widen(script, twins, random(3)); !slices.Contains(want, got) {
			t.Errorf("Widen(%q) = %q, want one of %q", script, got, want)
		}
	}
}

// Files of any content have twins or a reason, and never a crash.
func FuzzPlant(f *testing.F) {
	for _, s := range []string{
		"def test_a():\n    assert f() == {'a': [1, 2]}\n", "class A:\n  def test_a(self): pass\n", "x = '''", "@d(\n",
		"def test_a():\n\tx = 1\n\tassert y == x", "it('a', () => { expect(f()).toBe(1) })", "test(`a`, function () {",
		"/a[/]b/.test('x')", "func TestA(t *testing.T) { if f() != 3 { t.Fatal() } }",
		"test_a() {\n\tequal 'x' \"$(f)\"\n}\n", "test_a ( ) {\n", "test_a() {\nis 1 2\n}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, w := range map[string]Writer{
			"test_a.py": Python{}, "a_test.go": Golang{}, "a.test.js": JavaScript{}, "a.sh": Shell{},
		} {
			tests := []string{"test_a", "a", "TestA", "test_a (x.A)"}
			p, err := Plant(w, Options{Tests: tests, Sources: []Source{{name, []byte(text)}}, Rand: random(1)})
			if err == nil && (len(p.Files) != 1 || len(p.Twins) == 0) {
				t.Errorf("%d files, %d twins", len(p.Files), len(p.Twins))
			}
			if err == nil && name != "a_test.go" {
				if _, err := w.parse(p.Files[0]); err != nil {
					t.Errorf("%s with twins: %v\n%s", name, err, p.Files[0].Data)
				}
			}
		}
	})
}

// What a twin expects instead is never the right value, and the right value is at every place of the range of values.
func TestOthers(t *testing.T) {
	t.Parallel()
	texts := []string{"0", "1", "-3", "20", "127", "255", "0.5", "-1.25", "'x'", "'9'", "''", "True", "None", "[1, 2]", "{'a': 1.5}"}
	for _, text := range texts {
		for seed := range uint64(100) {
			others := pyOthers(text, random(seed))
			if len(others) == 0 || slices.Contains(others, text) || len(others) > versions-1 {
				t.Fatalf("%s: %q", text, others)
			}
			if sorted := slices.Compact(slices.Sorted(slices.Values(others))); len(sorted) != len(others) {
				t.Fatalf("%s, twice: %q", text, others)
			}
		}
	}
	for _, c := range []struct{ n, least, most, low, high int }{
		{20, 0, math.MaxInt, 13, 27}, {2, 0, math.MaxInt, 0, 9},
		{-3, 0, math.MaxInt, -3, 4}, {-3, math.MinInt, math.MaxInt, -10, 4},
		{127, 0, 127, 120, 127}, {125, 0, 127, 118, 127},
	} {
		low, high := c.n, c.n
		for seed := range uint64(200) {
			others := otherNumbers(c.n, c.least, c.most, random(seed))
			low, high = min(low, slices.Min(others)), max(high, slices.Max(others))
		}
		if low != c.low || high != c.high {
			t.Errorf("%d of at least %d and at most %d: from %d to %d, want %d to %d", c.n, c.least, c.most, low, high, c.low, c.high)
		}
	}
}

// How many tests and twins there are depends on how many tests have to be guessed.
func TestWidth(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 8, 2: 3, 3: 2, 50: 2} {
		if w := width(n); w != want {
			t.Errorf("%d tests: %d, want %d", n, w, want)
		}
	}
}
