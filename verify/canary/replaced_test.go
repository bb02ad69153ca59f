package canary

import (
	"regexp"
	"strings"
	"testing"
)

// An edit shows which value of a test it replaces by which. If other tests have a substitute for that value, it is used
// instead.
func TestReplaced(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, was, becomes, value, other, want string }{
		{"assert f(20) == 20\n", "f(20) == 20", "f(20) == 17", "20", "17", "assert f(20) == 17\n"},
		{"assert f() == 'book'\n", "'book'", "'boop'", "book", "boop", "assert f() == 'boop'\n"},
		{"if f() != 200 {\n", "200", "203", "200", "231", "if f() != 231 {\n"},
	} {
		at := strings.LastIndex(tc.text, tc.was)
		e, value, other := replaced([]byte(tc.text), edit{at, at + len(tc.was), tc.becomes},
			map[string]string{"200": "231"})
		got := string(apply([]byte(tc.text), []edit{e}))
		if got != tc.want || value != tc.value || other != tc.other {
			t.Errorf("got\n%s, %q and %q, want\n%s, %q and %q", got, value, other, tc.want, tc.value, tc.other)
		}
	}
}

// A wrong expectation gives itself away if few people would write it in that form, or if the test still says what is
// right.
func TestGivesItselfAway(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		test string
		want Kind
	}{
		{"def test_list():\n    assert f('a') == []\n", Telling},
		{"def test_list():\n    assert f('a') == ['x']\n", Expectation},
		{"def test_it():\n    assert not f('a')\n", Expectation},
		{"def test_it():\n    assert f('a')\n", Telling},
		{"def test_it_is_refused():\n    assert not f('a')\n", Telling},
		{"def test_units():\n    assert not f('a')\n", Expectation},
		{"def test_units():\n    invalid = 'a'\n    assert not f(invalid)\n", Telling},
		{"def test_units():\n    assert not is_valid('a')\n", Expectation},
		{"def test_units():\n    assert f('a') == [None]\n", Telling},
		{"def test_a():\n    x = f('a')\n    assert len(x) == 5\n    assert 3 not in x\n", Expectation},
		{"def test_a():\n    assert len(f('a')) > 0\n", Telling},
		{"def test_a():\n    assert 5 <= f('a')\n", Telling},
		{"def test_a():\n    self.assertGreater(f('a'), 0)\n", Telling},
		{"def test_a():\n    assert f('a') == 73\n    assert f('b') == 73\n", Telling},
		{"def test_a():\n    assert f('a') == 73\n    assert f('b') == 18\n", Expectation},
		{"def test_a():\n    with raises(TypeError, match=f'{X} is no number'):\n        f('a')\n", Telling},
		{"def test_missing_key():\n    with raises(KeyError):\n        f('a')\n", Telling},
	} {
		set, err := New(Python{}, Options{
			Tests: List(Python{}, Source{"test_desk.py", []byte(tc.test)}), Sources: []Source{{"test_desk.py", []byte(tc.test)}},
			Rand: random(1),
		})
		if err != nil || set.Canaries[0].Kind != tc.want {
			t.Errorf("%s\n%+v, %v, want %s", tc.test, set.Canaries, err, tc.want)
			continue
		}
		if changed := string(set.Files([]int{0})[0].Data); strings.Contains(tc.test, "len(x)") && !strings.Contains(changed, "== 5") {
			t.Errorf("the length is wrong beside an element:\n%s", changed)
		}
	}
}

// If a test expects the text of an error, that text is made wrong, and not the error's type.
func TestTextsOfErrors(t *testing.T) {
	t.Parallel()
	for _, check := range []string{`raises(TypeError, match="black chalk")`, `raises(TypeError, match='black chalk')`,
		`self.assertRaisesRegex(TypeError, "black chalk")`} {
		source := Source{"test_a.py", []byte("def test_a():\n    with " + check + ":\n        f('a')\n")}
		for seed := range uint64(20) {
			set, err := New(Python{}, Options{Tests: []string{"test_a"}, Sources: []Source{source}, Rand: random(seed)})
			if err != nil || set.Canaries[0].Kind != Expectation {
				t.Fatalf("%s: %+v, %v", check, set.Canaries, err)
			}
			changed := string(set.Files([]int{0})[0].Data)
			if !strings.Contains(changed, "TypeError") || strings.Contains(changed, "black chalk") {
				t.Errorf("%s becomes\n%s", check, changed)
			}
		}
	}
}

// Wrong values look like the right one: shares stay below 1, closing tags match their opening ones, and words are
// words.
func TestOtherValuesAreOfTheirKind(t *testing.T) {
	t.Parallel()
	known := vocabulary{words: map[string]int{"new": 1, "word": 1}}
	for text, kind := range map[string]string{
		"<em>new</em>": `^<(\w+)>\w+</(\w+)>$`, "0.25": `^0\.\d\d$`, "4.5": `^\d+\.5$`, "true": `^false$`,
		"#70d6da":   `^#70d6dd$`,
		"on Monday": `^on (?:[A-LN-Z][a-z]{4,6}|M[a-np-z][a-z]{3,5})$`, "a3": `^a\d$`,
	} {
		r := newChance(random(1), nil, known)
		others := otherDecimals(text, 0, r)
		if len(others) == 0 {
			others = otherTexts(text, r)
		}
		for _, other := range others {
			found := regexp.MustCompile(kind).FindStringSubmatch(other)
			if found == nil || other == text || len(found) == 3 && found[1] != found[2] {
				t.Errorf("%s becomes %s", text, other)
			}
		}
		if len(others) == 0 {
			t.Errorf("%s has no others", text)
		}
	}
}
