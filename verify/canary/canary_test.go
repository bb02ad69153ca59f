package canary

import (
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

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"deepswe/env/testkit"
)

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// Each archive has test files and the ids of some of their tests, and shows the files with all of these tests made
// wrong.
func TestNew(t *testing.T) {
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
			w, ok := ForParser(parser, nil)
			if !ok {
				t.Fatalf("no writer for %q", parser)
			}
			o.Rand = random(7)
			set, err := New(w, o)
			var says strings.Builder
			if err != nil {
				fmt.Fprintln(&says, "error:", err)
			}
			var all []int
			for i, c := range set.Canaries {
				fmt.Fprintf(&says, "%s: %s, %s\n", c.Name, c.Kind, strings.Join(c.Tests, ", "))
				all = append(all, i)
			}
			for _, id := range o.Tests {
				if reason := set.Skipped[id]; reason != "" {
					fmt.Fprintf(&says, "%s: %s\n", id, reason)
				}
			}
			in.Files = append(in.Files, txtar.File{Name: "want", Data: []byte(says.String())})
			for _, f := range set.Files(all) {
				in.Files = append(in.Files, txtar.File{Name: "want " + f.Name, Data: f.Data})
				checkAgain(t, w, f, set)
			}
			testkit.Golden(t, file, txtar.Format(&in))
		})
	}
}

// checkAgain parses a file with wrong tests and looks for every one of them.
func checkAgain(t *testing.T, w Writer, f Source, set Set) {
	t.Helper()
	if strings.HasSuffix(f.Name, ".go") {
		if _, err := parser.ParseFile(token.NewFileSet(), f.Name, f.Data, 0); err != nil {
			t.Errorf("with wrong tests, %v", err)
		}
	}
	s, err := w.parse(f)
	if err != nil {
		t.Fatalf("with wrong tests, %s: %v", f.Name, err)
	}
	for _, c := range set.Canaries {
		if c.File != f.Name {
			continue
		}
		for _, id := range c.Tests {
			_, ok := s.find(id)
			if g, may := s.(generator); may && !ok {
				_, ok = g.generates(id)
			}
			if !ok {
				t.Errorf("the test %s is gone", id)
			}
		}
	}
}

// The same seed gives the same canaries, and other seeds give other ones.
func TestNewIsRandom(t *testing.T) {
	t.Parallel()
	source := Source{"tests/test_a.py", []byte("def test_one():\n    assert f(1) == 2\n    assert g() == 'x'\n")}
	texts, mutations := map[string]bool{}, map[string]bool{}
	for seed := range uint64(40) {
		o := Options{Tests: []string{"tests/test_a.py::test_one"}, Sources: []Source{source}, Rand: random(seed)}
		set, err := New(Python{}, o)
		if err != nil || len(set.Canaries) != 1 {
			t.Fatalf("%d canaries, %v", len(set.Canaries), err)
		}
		o.Rand = random(seed)
		again, _ := New(Python{}, o)
		text := string(set.Files([]int{0})[0].Data)
		if other := string(again.Files([]int{0})[0].Data); other != text {
			t.Fatalf("the same seed gives\n%s\nand\n%s", text, other)
		}
		texts[text], mutations[set.Canaries[0].Mutation] = true, true
		if string(set.Files(nil)[0].Data) != string(source.Data) {
			t.Error("without wrong tests, a file is changed")
		}
	}
	if want := map[string]bool{"tests/test_a.py:test_one:0.0": true, "tests/test_a.py:test_one:1.0": true}; !maps.Equal(mutations, want) {
		t.Errorf("mutations %v, want %v", mutations, want)
	}
	if len(texts) < 10 {
		t.Errorf("%d texts", len(texts))
	}
}

// A mutation that gives itself away is used only if there is no other.
func TestNewPrefersWhatAPersonWouldWrite(t *testing.T) {
	t.Parallel()
	o := Options{Tests: []string{"test_a"}, Sources: []Source{{"test_a.py", []byte(
		"def test_a():\n    assert f() == x or y\n    assert g() == 3\n")}}}
	key := "test_a.py:test_a:"
	for _, want := range []string{key + "1.0", key + "0.0", key + "end"} {
		o.Rand = random(1)
		set, err := New(Python{}, o)
		if err != nil {
			t.Fatal(err)
		}
		got := set.Canaries[0].Mutation
		if (got == key+"1.0") != (want == key+"1.0") || (got == key+"end") != (want == key+"end") {
			t.Errorf("got mutation %s, want one like %s", got, want)
		}
		if o.Excluded == nil {
			o.Excluded = map[string]bool{}
		}
		o.Excluded[got] = true
	}
	if _, err := New(Python{}, o); !errors.Is(err, ErrNone) {
		t.Errorf("without any mutation: %v", err)
	}
}

// A canary lists all cases of its function, and no other test.
func TestCases(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		w    Writer
		text string
		// asked is the id of a test to change, cases are the further ids, and want are those of them in its canary.
		asked       string
		cases, want []string
	}{
		"test_a.py": {
			Python{}, "@mark.parametrize('n', [1, 2])\ndef test_a(n):\n    assert f(n) == 3\n\n\n" +
				"def test_b():\n    assert f(0) == 4\n",
			"test_a.py::test_a[1]", []string{"test_a.py::test_b", "test_a.py::test_a[2]", "test_c.py::test_a[3]"},
			[]string{"test_a.py::test_a[2]"},
		},
		"a_test.go": {
			Golang{}, "package a\n\nfunc TestA(t *testing.T) {\n\tif f() != 3 {\n\t\tt.Fatal(\"a\")\n\t}\n}\n",
			"TestA", []string{"TestA/one", "TestAB"}, []string{"TestA/one"},
		},
		"ATest.java": {
			Braced{}, "class ATest {\n  @ParameterizedTest void a(int n) {\n    assertEquals(3, f(n));\n  }\n}\n",
			"ATest a(int)[1]", []string{"ATest a(int)[2]", "BTest a(int)[2]"}, []string{"ATest a(int)[2]"},
		},
		"a.test.js": {
			JavaScript{}, "it.each([1, 2])('adds %i', (n) => { expect(f(n)).toBe(3) })\nit('is', () => { expect(f()).toBe(4) })\n",
			"adds 1", []string{"is", "adds 2"}, []string{"adds 2"},
		},
	} {
		set, err := New(tc.w, Options{
			Tests: []string{tc.asked}, Fixes: 1, Cases: tc.cases, Sources: []Source{{name, []byte(tc.text)}}, Rand: random(1),
		})
		if err != nil || len(set.Canaries) != 1 {
			t.Fatalf("%s: %d canaries, %v", name, len(set.Canaries), err)
		}
		if diff := cmp.Diff(append([]string{tc.asked}, tc.want...), set.Canaries[0].Tests); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// A constant failure does not end Tape's run, so the tests after it still run.
func TestOutrightInTape(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"function (st) { st.deepEqual(f(), [1]); st.end(); }":    "st.deepEqual('x'.repeat(2).length, 3);",
		"async t => { t.ok(f()); t.end() }":                      "t.fail('2 is not 3');",
		"(t) => { t.test('b', (st) => { st.equal(1, 1) }) }":     "throw new Error",
		"function (assert) { assert.strictEqual(f(), 1) }":       "assert.strictEqual('x'.repeat(2).length, 3);",
		"(done) => { expect(f()).toBe(1); done() }":              "throw new Error",
		"() => { x.t.equal(f(), 1) }":                            "throw new Error",
		"async ({ page }) => { expect(await page.f()).toBe(1) }": "throw new Error",
	} {
		set, err := New(JavaScript{}, Options{
			Tests: []string{"adds up"}, Sources: []Source{{"a.test.js", []byte("test('adds up', " + body + ")\n")}},
			Only: Outright, Rand: random(1),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(set.Files([]int{0})[0].Data); !strings.Contains(got, want) {
			t.Errorf("%s\nis not wrong by %s", got, want)
		}
	}
}

// Constant failures leave all texts as they are.
func TestOutrightKeepsComments(t *testing.T) {
	t.Parallel()
	text := "def test_a():\n    # three\n    assert f() == 3, 'three'\n"
	for only, want := range map[Kind]bool{Outright: true, Expectation: false} {
		set, err := New(Python{}, Options{
			Tests: []string{"test_a.py::test_a"}, Sources: []Source{{"test_a.py", []byte(text)}}, Only: only, Rand: random(1),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(set.Files(nil)[0].Data), "three"); got != want {
			t.Errorf("%s: its comments stay: %v, want %v", only, got, want)
		}
	}
}

// A test of which two mutations have turned out to be spoilt fails outright.
func TestSpoilt(t *testing.T) {
	t.Parallel()
	text := "class ATest {\n  @ParameterizedTest void a(int n) {\n"
	for n := range 4 {
		text += fmt.Sprintf("    if (n == %d) assertEquals(%d, f(n));\n", n, 10*n+7)
	}
	o := Options{
		Tests: []string{"ATest a(int)[1]"}, Sources: []Source{{"ATest.java", []byte(text + "  }\n}\n")}},
		Excluded: map[string]bool{},
	}
	for i := range 3 {
		o.Rand = random(1)
		set, err := New(Braced{}, o)
		if err != nil {
			t.Fatal(err)
		}
		if c := set.Canaries[0]; (c.Kind == Outright) != (i == 2) {
			t.Errorf("after %d spoilt mutations, the test is wrong by %s", i, c.Kind)
		}
		o.Excluded[set.Canaries[0].Mutation] = true
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	c := Canary{Name: "test_sum"}
	for name, want := range map[string]bool{
		"tests/a.py::test_sum[1-2]": true, "test_sum (a.B)": true, "test_sum_0_x": true, "tests/a.py::test_sum": true,
		"tests/a.py::my_test_sum": false, "tests/a.py::test_sum_twice": false, "": false,
	} {
		if got := c.Reports(name); got != want {
			t.Errorf("Reports(%q) = %v, want %v", name, got, !got)
		}
	}
}

// The ids of runners that name no file lead to a function.
func TestAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		w        Writer
		id, want string
	}{
		{Braced{}, "version::tests::orders", "orders"}, {Braced{}, "parses::case_1_short", "parses"},
		{Braced{}, "org.example.SumsTest adds", "adds"}, {Braced{}, "org.example.SumsTest#adds", "adds"},
		{Braced{}, "SumsTest > Nested > finds(int)[2]", "finds"}, {Braced{}, "org.example.Sums$Nested adds{int}[1]", "adds"},
		{Braced{}, `Tests\SumsTest testWords with data set "a.b"`, "testWords"}, {Braced{}, "", ""},
		{Ruby{}, "SumsTest#test_adds", "test_adds"}, {Ruby{}, "SumsTest#test: says which", "says which"},
		{Ruby{}, "Sums when empty adds nothing", ""}, {Golang{}, "TestSums/of two", "TestSums"},
		{Golang{}, "example.com/sums/all TestSums", "TestSums"},
	} {
		if _, got := tc.w.Address(tc.id); got != tc.want {
			t.Errorf("%q leads to %q, want %q", tc.id, got, tc.want)
		}
	}
}

// A test whose id names its package is the one in that package's directory.
func TestPackages(t *testing.T) {
	t.Parallel()
	text := []byte("package p\n\nimport \"testing\"\n\nfunc TestSums(t *testing.T) {}\n")
	for id, want := range map[string]string{
		"TestSums": "/app/sums_test.go", "example.com/sums TestSums": "/app/sums_test.go",
		"example.com/sums/all TestSums":     "/app/all/sums_test.go",
		"example.com/sums/few/all TestSums": "/app/few/all/sums_test.go",
		"example.com/sums/few TestSums":     "/app/few/sums_test.go",
	} {
		o := Options{Tests: []string{id}, Rand: random(1)}
		for _, dir := range []string{"", "all/", "few/", "few/all/"} {
			o.Sources = append(o.Sources, Source{"/app/" + dir + "sums_test.go", text})
		}
		set, err := New(Golang{}, o)
		if err != nil || len(set.Canaries) != 1 || set.Canaries[0].File != want {
			t.Errorf("%s: %+v, %v, want %s", id, set.Canaries, err, want)
		}
	}
}

// A writer for several languages is not used where a task's tests are in another one.
func TestForParser(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		hidden []string
		want   bool
	}{
		{[]string{"test/a.cpp", "test/data.json"}, false}, {[]string{"src/test/java/ATest.java", "a.c"}, true},
		{[]string{"tests/ATest.php"}, true}, {[]string{"test/data.json"}, true}, {nil, true},
	} {
		if _, got := ForParser("parse_log_junit", tc.hidden); got != tc.want {
			t.Errorf("%q: %v, want %v", tc.hidden, got, tc.want)
		}
	}
}

// Whatever a file contains, New returns canaries or an error, and its wrong tests can still be parsed.
func FuzzNew(f *testing.F) {
	for _, s := range []string{
		"def test_a():\n    assert f() == {'a': [1, 2]}\n", "class A:\n  def test_a(self): pass\n", "x = '''", "@d(\n",
		"def test_a():\n\tx = 1\n\tassert y == x", "it('a', () => { expect(f()).toBe(1) })", "test(`a`, function () {",
		"/a[/]b/.test('x')", "func TestA(t *testing.T) { if f() != 3 { t.Fatal() } }",
		"#[test]\nfn test_a() {\n    assert_eq!(f(), vec![Some(3u8)], \"{}\", 4);\n}", "void a() { assertThat(f()).isEqualTo('x'); }",
		"/** @test */\npublic function test_a() { $this->assertSame(['a' => 1.5], f()); }",
		"it 'a' do\n  expect(f).to eq [1, 'b']\nend\n", "def test_a\n  assert_equal(3,\n    f)\nend\n",
		"test_a() {\n\tequal 'x' \"$(f)\"\n}\n", "test_a ( ) {\n", "test_a() {\nis 1 2\n}",
		"def test_a():\n    assert f() == \"0\u00e1000\"\n", "def test_a():\n    assert f() == \"0\xe1000\"\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, w := range map[string]Writer{
			"test_a.py": Python{}, "a_test.go": Golang{}, "a.test.js": JavaScript{}, "a.sh": Shell{},
			"tests/a.rs": Braced{}, "A.java": Braced{}, "a.php": Braced{}, "a.rb": Ruby{},
		} {
			tests := []string{"test_a", "a", "TestA", "test_a (x.A)", "#test_a"}
			set, err := New(w, Options{Tests: tests, Sources: []Source{{name, []byte(text)}}, Rand: random(1)})
			if err != nil {
				continue
			}
			files := set.Files([]int{0})
			if len(files) != 1 {
				t.Errorf("%d files", len(files))
			}
			if _, err := w.parse(files[0]); err != nil && name != "a_test.go" {
				t.Errorf("%s with a wrong test: %v\n%s", name, err, files[0].Data)
			}
		}
	})
}

// A wrong test never expects the right value. The range of its values does not give that value away: it may lie
// anywhere in the range.
func TestOthers(t *testing.T) {
	t.Parallel()
	texts := []string{"0", "1", "-3", "20", "127", "255", "0.5", "-1.25", "'x'", "'9'", "''", "True", "None", "[1, 2]", "{'a': 1.5}",
		"[Tag('py3', 'any'), Tag('cp3', 'any')]", "{'a': Tag('py3')}"}
	for _, text := range texts {
		for seed := range uint64(100) {
			others := pyOthers(text, newChance(random(seed), nil, vocabulary{}))
			if len(others) == 0 || slices.Contains(others, text) || len(others) > versions-1 {
				t.Fatalf("%s: %q", text, others)
			}
			if sorted := slices.Compact(slices.Sorted(slices.Values(others))); len(sorted) != len(others) {
				t.Fatalf("%s, twice: %q", text, others)
			}
		}
	}
	if others := pyOthers(`f"<{name!r}>"`, newChance(random(1), nil, vocabulary{})); len(others) > 0 {
		t.Errorf("a string with names and formats in it: %q", others)
	}
	for _, c := range []struct{ n, least, most, low, high int }{
		{20, 0, math.MaxInt, 13, 27}, {2, 0, math.MaxInt, 0, 9},
		{-3, 0, math.MaxInt, -3, 4}, {-3, math.MinInt, math.MaxInt, -10, 4},
		{127, 0, 127, 120, 127}, {125, 0, 127, 118, 127},
	} {
		low, high := c.n, c.n
		for seed := range uint64(200) {
			others := otherNumbers(c.n, c.least, c.most, newChance(random(seed), nil, vocabulary{}))
			low, high = min(low, slices.Min(others)), max(high, slices.Max(others))
		}
		if low != c.low || high != c.high {
			t.Errorf("%d of at least %d and at most %d: from %d to %d, want %d to %d", c.n, c.least, c.most, low, high, c.low, c.high)
		}
	}
}

// A wrong number shares the divisors that the test mentions, if the range of values has room for that.
func TestOtherMultiples(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		test      string
		n, most   int
		step      int
		low, high int
	}{
		{`n = parse("14 dozen")`, 168, math.MaxInt, 14, 70, 266},
		{`n = parse("4 of 6")`, 36, math.MaxInt, 12, 0, 120},
		{`n = parse("36")`, 36, math.MaxInt, 1, 29, 43},
		{`n = parse("50")`, 100, 127, 1, 93, 107},
		{`n = parse("7")`, 0, math.MaxInt, 1, 0, 7},
	} {
		low, high := tc.n, tc.n
		for seed := range uint64(300) {
			for _, other := range otherNumbers(tc.n, 0, tc.most, newChance(random(seed), []byte(tc.test), vocabulary{})) {
				if (other-tc.n)%tc.step != 0 {
					t.Fatalf("%s: %d for %d", tc.test, other, tc.n)
				}
				low, high = min(low, other), max(high, other)
			}
		}
		if low != tc.low || high != tc.high {
			t.Errorf("%s: %d to %d for %d, want %d to %d", tc.test, low, high, tc.n, tc.low, tc.high)
		}
	}
}

// Tests to fix that expect the same value get the same wrong value, and form a group. Tests that pass without a fix are
// not in it, because code under test can tell whether they are wrong.
func TestGroups(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	var ids []string
	for _, name := range []string{"a", "b", "c", "kept"} {
		fmt.Fprintf(&source, "def test_%[1]s():\n    page = get(\"%[1]s\")\n    assert page.body\n"+
			"    assert page.status == 404\n\n\n", name)
		ids = append(ids, "test_a.py::test_"+name)
	}
	set, err := New(Python{}, Options{
		Tests: ids, Fixes: 3, Sources: []Source{{"test_a.py", []byte(source.String())}}, Rand: random(1),
	})
	if err != nil || len(set.Canaries) != 4 {
		t.Fatalf("%+v, %v", set, err)
	}
	wrong := regexp.MustCompile(`status == (\d+)`).FindAllStringSubmatch(string(set.Files([]int{0, 1, 2, 3})[0].Data), -1)
	for i, c := range set.Canaries {
		if same := c.Group == set.Canaries[0].Group; same != (i < 3) {
			t.Errorf("%s is in the group %q, and %s in %q", c.Name, c.Group, set.Canaries[0].Name, set.Canaries[0].Group)
		}
		if wrong[i][1] == "404" || i < 3 && wrong[i][1] != wrong[0][1] {
			t.Errorf("%s expects %s, and %s %s", c.Name, wrong[i][1], set.Canaries[0].Name, wrong[0][1])
		}
	}
	if known := source.String()[:60]; set.Known(0, []byte(known)) || !set.Known(0, []byte(source.String())) {
		t.Errorf("%q has the test, or its own source has not", known)
	}
}

// A word that the earlier version of a test expected as well is known to be right, so the wrong value keeps it.
func TestEarlier(t *testing.T) {
	t.Parallel()
	const before, after = "def test_a():\n    assert f() == \"red chair\"\n", "def test_a():\n    assert f() == \"red table\"\n"
	for earlier, words := range map[string]string{before: "red", after: "[a-z]+"} {
		for seed := range uint64(20) {
			set, err := New(Python{}, Options{
				Tests: []string{"test_a.py::test_a"}, Fixes: 1, Sources: []Source{{"test_a.py", []byte(after)}},
				Earlier: []Source{{"test_a.py", []byte(earlier)}}, Rand: random(seed),
			})
			if err != nil || len(set.Canaries) != 1 {
				t.Fatalf("%+v, %v", set.Canaries, err)
			}
			data := string(set.Files([]int{0})[0].Data)
			kept := regexp.MustCompile(`"` + words + ` `).MatchString(data)
			if set.Canaries[0].Kind == Expectation && !kept {
				t.Errorf("got\n%s", data)
			}
		}
	}
}

// The reports of Vitest and Jest are read without a number at the end of a title, which may belong to the title.
func TestTitleThatIsCut(t *testing.T) {
	t.Parallel()
	const id = "a.test.js > steps by 3 to"
	const source = "it.each([[3, 9]])('steps by %i to %i', (step, to) => {\n  expect(f(step)).toBe(to);\n});\n"
	set, err := New(JavaScript{}, Options{
		Tests: []string{id}, Fixes: 1, Sources: []Source{{"a.test.js", []byte(source)}}, Rand: random(1),
	})
	if err != nil || len(set.Canaries) != 1 || !slices.Contains(set.Canaries[0].Tests, id) {
		t.Errorf("%+v, %v", set.Canaries, err)
	}
}

// Of two tests that expect the same number, the second has a single wrong one that does not stand out: 4 is even, as
// its inputs are, and occurs elsewhere. A draw misses it about every other time, and further draws find it.
func TestDrawsAgain(t *testing.T) {
	t.Parallel()
	const source = `test_left_d() {
	equal '10' "$(awk -f program.awk left 11 1)"
}

test_left_e() {
	equal '10' "$(awk -f program.awk left 12 2)"
}

test_within_f() {
	equal 'yes' "$(awk -f program.awk within 10 10 13)"
}

test_since_g() {
	equal '-5' "$(awk -f program.awk since 9 4)"
}
`
	const seeds = 100
	telling := 0
	for seed := range uint64(seeds) {
		set, err := New(Shell{}, Options{
			Tests: strings.Fields("test_left_d test_left_e test_within_f test_since_g"), Fixes: 2, Rand: random(seed),
			Sources: []Source{{Name: "test.sh", Data: []byte(source)}}, Hidden: []string{"test.sh"},
		})
		if err != nil || len(set.Canaries) != 4 {
			t.Fatalf("seed %d: %d wrong tests, %v", seed, len(set.Canaries), err)
		}
		if slices.ContainsFunc(set.Canaries, func(c Canary) bool { return c.Kind == Telling }) {
			telling++
		}
	}
	if telling > seeds/20 {
		t.Errorf("%d of %d draws have a wrong test that gives itself away", telling, seeds)
	}
}
