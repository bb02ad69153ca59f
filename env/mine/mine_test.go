package mine

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env/project"
	"deepswe/env/testkit"
)

// history makes a repository with a shell script.
func history(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	c := exec.CommandContext(t.Context(), "sh", "-ec", "git init -q --initial-branch=main .\n"+
		"change() { mkdir -p $(dirname $1); printf '%s\\n' \"$2\" >>$1; git add -A; }\n"+
		"commit() { git commit -q -m \"$1\" -m \"${2:-}\"; }\n"+script)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a",
		"GIT_AUTHOR_EMAIL=a@localhost", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@localhost")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// candidatesOf returns the candidates among the newest commits, 0 for all, and why the others are none.
func candidatesOf(t *testing.T, dir string, newest int) ([]Candidate, map[Reason]int) {
	t.Helper()
	commits, err := Walk(t.Context(), dir, "", newest)
	if err != nil {
		t.Fatal(err)
	}
	candidates, unfit, err := Choose(t.Context(), dir, commits, Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	return candidates, unfit
}

// Every commit is either a candidate or has a reason why not.
func TestChoose(t *testing.T) {
	t.Parallel()
	dir := history(t, `change calc.py 'a = 1'; change tests/test_calc.py 'def test_a(): pass'; commit root
change calc.py 'b = 1'; change tests/test_calc.py 'def test_b(): pass'; commit 'Fixes #12: add b'
change calc.py 'c = 1'; commit 'no tests'
change tests/test_calc.py 'def test_c(): pass'; commit 'no sources'
change calc.py 'd = 1'; change tests/test_calc.py 'def test_d(): pass'; 
git commit -q --author 'dependabot[bot] <b@x>' -m bump
change calc.py 'e = 1'; change tests/test_calc.py 'def test_e(): pass'; commit undone
git revert --no-edit HEAD
printf 'a  =  1\n' >blank.py; change blank.py ''; commit white
printf 'a = 1\n' >blank.py; change tests/test_calc.py 'def test_f(): pass'; git add -A; commit spaces
git checkout -qb topic; change calc.py 'g = 1'; commit one; change tests/test_calc.py 'def test_g(): pass'; commit two
git checkout -q main; git merge -q --no-ff -m "Merge pull request #3 from a/topic" -m "Add g" topic
change big.py "$(seq 400)"; change tests/test_big.py 'def test_big(): pass'; commit large
change calc.py 'same = 1'; change tests/test_calc.py 'def test_s(): pass'; commit again
git show HEAD:calc.py | sed '$d' >calc.py; git add -A; commit undo
change calc.py 'same = 1'; change tests/test_calc.py 'def test_s2(): pass'; commit newest`)
	commits, err := Walk(t.Context(), dir, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	candidates, unfit, err := Choose(t.Context(), dir, commits, Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	var subjects []string
	for _, c := range candidates {
		subjects = append(subjects, c.Subject())
	}
	if want := []string{"newest", "Merge pull request #3 from a/topic", "Fixes #12: add b"}; !cmp.Equal(subjects, want) {
		t.Errorf("candidates are %q, want %q", subjects, want)
	}
	want := map[Reason]int{Root: 1, NoTests: 3, NoSources: 1, Bot: 1, Reverted: 2, Formatting: 1, TooLarge: 1, Repeated: 1}
	if diff := cmp.Diff(want, unfit); diff != "" {
		t.Error(diff)
	}
	merged, first := candidates[1], candidates[2]
	if !strings.Contains(merged.Sources, "+g = 1") || strings.Contains(merged.Sources, "test_g") ||
		!strings.Contains(merged.Tests, "+def test_g") || merged.Labels["merge"] != "yes" {
		t.Errorf("the merge is %+v", merged)
	}
	if first.Labels["issue"] != "12" || first.Labels["fix"] != "yes" || first.Labels["language"] != "python" ||
		first.Labels["lines"] != "1" {
		t.Errorf("labels are %v", first.Labels)
	}
	if below, err := Walk(t.Context(), dir, "tests", 0); err != nil || len(below) >= len(commits) {
		t.Errorf("%d of %d commits change tests, %v", len(below), len(commits), err)
	}
}

// A commit may change more files than fit on a command line.
func TestManyFixtures(t *testing.T) {
	t.Parallel()
	dir := history(t, `change calc.py 'a = 1'; commit root
{ printf 'blob\nmark :1\ndata 2\nx\n\ncommit refs/heads/main\ncommitter a <a@localhost> 1 +0000\ndata 12\nb is missing\n'
printf 'from refs/heads/main^0\nM 100644 :1 calc.py\nM 100644 :1 tests/test_calc.py\n'
seq -f "M 100644 :1 tests/$(printf %0220d 0)/%g" 10000; } | git fast-import --quiet`)
	candidates, _ := candidatesOf(t, dir, 1)
	if len(candidates) != 1 || strings.Count(candidates[0].Tests, "\ndiff --git ") != 10_000 {
		t.Errorf("%d candidates", len(candidates))
	}
}

// A merge of a main or release branch is told from one of a topic.
func TestForward(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]bool{
		"Merge branch 'master' into topic": true, "Merge release 1.3.1 into master": true, "Merge v2.1 into main": true,
		"Merge branch 'fix-main'": false, "Merge pull request #3 from a/master": false, "Merge lists of both": false,
	} {
		if got := forward().MatchString(subject); got != want {
			t.Errorf("%q: %v", subject, got)
		}
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for kind, names := range map[Kind][]string{
		Source: {"a.py", "src/x/main.rs", "lib/contest.js", "testimony.go", "pkg/latest.ts",
			"src/main/java/com/example/test/ATest.java", "src/docs/page.ts", "src/build/__init__.py",
			"src/latest.c", "fastest.cpp", "xmltest.js"},
		Test: {"a_test.go", "tests/helper.py", "src/a.test.tsx", "spec/a_spec.rb", "src/test/java/ATest.java",
			"FooTests.java", "conftest.py", "xmltest.cpp", "unittest.c", "test1.cc", "src/testlib.h"},
		Data: {"testdata/a.go", "tests/a.json", "x/__snapshots__/a.js", "ui.test.snap",
			"tap-snapshots/test/a.js.test.cjs"},
		Environment: {"go.mod", "web/package-lock.json", "requirements/dev.txt", "pyproject.toml", "composer.json", "a.gemspec"},
		Generated:   {"vendor/a/b.go", "api.pb.go", "x_pb2.py", "node_modules/a/index.js", "dist/index.mjs"},
		Example:     {"examples/base64.rs", "example/a/main.go", "examples/a/src/main.rs", "benches/a.rs"},
		Docs:        {"README.md", "docs/conf.py", "docs/src/page.ts", "examples/a.yaml", "CHANGES", "LICENSE"},
		Other:       {"Makefile", "logo.svg"},
	} {
		for _, name := range names {
			if got := kindOf(name); got != kind {
				t.Errorf("%s is %s, want %s", name, got, kind)
			}
		}
	}
}

// A statement gives away neither the change nor where it is discussed.
func TestStatement(t *testing.T) {
	t.Parallel()
	c := Candidate{
		Commit: Commit{
			Message: "Merge pull request #5 from a/b\n\nfix(net): retries never end (#5)\n\n" +
				"See https://x.test/pull/5 and 0a1b2c3d4e.\n" +
				"The loop lacks `if tries > limit {` now.\ntests/test_net.py covers it, in test_endless.\n" +
				"Closes #4\n\nSigned-off-by: A <a@x>",
			Changes: []Change{{Path: "net.py", Kind: Source}, {Path: "tests/test_net.py", Kind: Test}},
		},
		Sources: "+++ b/net.py\n+    if tries > limit {\n+def again(limit=3):\n+def _hidden():\n-def gone(x):\n" +
			"+def moved():\n def moved():\n",
		Tests: "+def test_endless():\n+    again(4); _hidden(); moved()\n",
	}
	const called = "\n\nThese are called by name:\n\n    def again(limit=3)\n"
	for name, tc := range map[string]struct {
		issue, from, want string
		symptoms          []string
	}{
		"from the message": {"", "message and tests",
			"retries never end\n\nWhat happens now:\n\n    it hangs" + called,
			[]string{"it hangs", "in test_endless"}},
		"from the issue":         {"It tries for ever\n\nsince #3", "issue", "It tries for ever" + called, nil},
		"the issue is too short": {"Hm", "message", "retries never end" + called, nil},
	} {
		got, from, why := c.Statement([]Text{{FromIssue, tc.issue}, {FromMessage, c.Message}}, tc.symptoms)
		if got != tc.want || from != tc.from || why != "" {
			t.Errorf("%s: %s %q, want %q", name, from, got, tc.want)
		}
	}
	c.Message = "Add `again`"
	if got, _, why := c.Statement([]Text{{FromMessage, c.Message}}, nil); got != c.Message+called || why != "" {
		t.Errorf("a message of two words, and a signature: %q, %s", got, why)
	}
	c.Message = "Fix #9"
	if got, _, why := c.Statement([]Text{{FromMessage, c.Message}}, nil); why != Unsaid {
		t.Errorf("a message without words gives %q", got)
	}
}

// A signature leaves out the body or value of a definition.
func TestInterface(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`func (f boolValue) Type() string { return "bool" }`:  "func (f boolValue) Type() string",
		`func Type(of map[string]struct{}) (string, error) {`: "func Type(of map[string]struct{}) (string, error)",
		`type Type = Other`:                                  "type Type",
		`type Type struct{ a int }`:                          "type Type struct",
		`def Type(a, b=":", *, c: int = 3) -> dict: x`:       `def Type(a, b=":", *, c: int = 3) -> dict`,
		`    async def Type(a="("): return a + 1`:            `async def Type(a="(")`,
		`class Type(Base): limit = 4`:                        "class Type(Base)",
		`export const Type = (a, b = {}) => a * 2;`:          "export const Type = (a, b = {})",
		`export const Type = async a => a * 2;`:              "export const Type = async a",
		`export const Type = [1, 2].map(a => a * 2)`:         "export const Type",
		`export const Type = { a: 1 }`:                       "export const Type",
		`export function Type(a: string): string {`:          "export function Type(a: string): string",
		`export interface Type { a: number }`:                "export interface Type",
		`pub fn Type<'a>(x: &'a str) -> &'a str { &x[1..] }`: "pub fn Type<'a>(x: &'a str) -> &'a str",
		`    public int Type(int a) { return a + 1; }`:       "public int Type(int a)",
		`export function Type(
  a: string,
  b = {},
): string[] {
  return []`: "export function Type(a: string, b = {}): string[]",
		`def Type(
    a, b=")"
) -> int:
    return 1`: `def Type(a, b=")") -> int`,
		`func Type(a int,
	b func(string) error) error {`: "func Type(a int, b func(string) error) error",
	} {
		c := Candidate{Sources: "+" + strings.ReplaceAll(line, "\n", "\n+") + "\n", Tests: "+Type\n"}
		if got := c.Interface(); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// A line that is only a reference is removed, and so is a reference at the end of a line.
func TestReferencesAreLeftOut(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"Adds what is missing, as described in https://x.test/5": "Adds what is missing",
		"See #4 for more details.\nIt hangs":                     "It hangs",
		"It hangs (see #4)":                                      "It hangs",
		"It hangs in the cases that #4 shows":                    "It hangs in the cases that shows",
		"See also the list of cases":                             "See also the list of cases",
	} {
		if got := clean(line, nil); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// A text by somebody who knows the change is refused, with the reason, if it gives away any of it.
func TestLeak(t *testing.T) {
	t.Parallel()
	c := Candidate{
		Commit: Commit{Changes: []Change{{Path: "net.py", Kind: Source}, {Path: "tests/test_net.py", Kind: Test}}},
		Sources: "--- a/net.py\n+++ b/net.py\n-def old(x):\n+def old(x, y):\n+def helper(n):\n+def again(limit=3):\n" +
			"+    if tries > limit and not stopped:\n+        raise TooMany(tries, limit, stopped)\n+++retries;\n",
		Tests: "+++ b/tests/helper/test_net.py\n+def test_endless():\n+    again(4)\n",
	}
	const fine = "Requests to a server that is gone are repeated for ever. I call again with a limit of four, unplug the " +
		"cable, and expect an error after the fourth one, but old goes on without an end. "
	for text, want := range map[string]string{
		fine:                              "",
		"It hangs.":                       "2 words",
		strings.Repeat(fine, 20):          "words",
		fine + "See test_endless.":        `"test_endless"`,
		fine + "tests/test_net.py hangs.": `"tests/test_net.py"`,
		fine + "if tries > limit and not stopped:":                            "is in the change",
		fine + "The loop needs ++retries;":                                    "is in the change",
		fine + "Fixed in #12.":                                                `refers to "#12"`,
		fine + "See https://x.test/pull/5.":                                   "refers to",
		fine + "Broken by 0a1b2c3d4e.":                                        `the hash "0a1b2c3d4e"`,
		fine + "Use helper for it.":                                           `names "helper"`,
		fine + "when limit and not stopped raise TooMany tries limit stopped": "it repeats the change",
	} {
		got := c.Leak(text)
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A statement has no test's name in any language, but may say what is called like a test.
func TestNamesOfTests(t *testing.T) {
	t.Parallel()
	for tests, want := range map[string]string{
		"+def test_odd(self):": "test_odd", "+func TestOdd(t *testing.T) {": "TestOdd", "+    fn keeps_rest() {": "keeps_rest",
		"+  void keepsRest() throws Exception {": "keepsRest", "+    public function testOdd(): void": "testOdd",
		"+class HalfTest extends TestCase": "HalfTest", "+  it \"keeps what's left\" do": "keeps what's left",
		"+test('keeps it', () => {": "keeps it", "+  context 'odd' do": "", "+    fn half_of() {": "", "+    fn half() {": "",
	} {
		c := Candidate{Sources: "+fn half_of(n: u8) -> u8 {\n", Tests: tests + "\n"}
		got := slices.DeleteFunc(c.secrets(), func(s string) bool { return strings.HasPrefix(s, "fn half_of(n") })
		if strings.Join(got, "|") != want {
			t.Errorf("%s: %q, want %q", tests, got, want)
		}
	}
}

// Commits with the same dependencies belong to one era, even if the project's version differs.
func TestEras(t *testing.T) {
	t.Parallel()
	dir := history(t, `change pyproject.toml 'version = "1"'; commit one
change a.py x; commit two
sed -i 's/"1"/"2"/' pyproject.toml; git add -A; commit three
change pyproject.toml 'dependencies = ["x"]'; commit four
change vendor/go.mod 'module x'; commit five`)
	commits, err := Walk(t.Context(), dir, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range commits {
		all = append(all, c.Hash)
	}
	eras, err := Eras(t.Context(), dir, all)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(all)
	if e := func(i int) string { return eras[all[i]] }; e(0) != e(1) || e(1) != e(2) || e(2) == e(3) || e(3) != e(4) {
		t.Errorf("eras are %v", eras)
	}
}

// A change that does not affect what is installed begins no era.
func TestInstalls(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		file, one, other string
		same             bool
	}{
		{"package.json", `{"version": "1", "a": 1, "jest": {}}`, `{"a": 1, "description": "x"}`, true},
		{"package.json", `{"dependencies": {"a": "1"}}`, `{"dependencies": {"a": "2"}}`, false},
		{"package.json", `{"scripts": {"test": "a"}}`, `{"scripts": {"test": "b"}}`, true},
		{"package.json", `{"scripts": {"prepare": "husky", "x": "a"}}`, `{"scripts": {"prepare": "husky", "x": "b"}}`, true},
		{"package.json", `{"scripts": {"prepare": "husky"}}`, `{"scripts": {"prepare": "tsc"}}`, false},
		{"package.json", `{"scripts": {"prepare": "npm run x", "x": "a"}}`,
			`{"scripts": {"prepare": "npm run x", "x": "b"}}`, false},
		{"package.json", `{"what": "nobody knows"}`, `{}`, false},
		{"package.json", `{"a"`, `{"b"`, false},
		{"composer.json", `{"keywords": ["a"]}`, `{"authors": []}`, true},
		{"composer.json", `{"scripts": {"post-install-cmd": "a"}}`, `{}`, false},
		{"composer.json", `{"autoload": {"files": ["a"]}}`, `{"autoload": {"files": ["b"]}}`, false},
		{"pyproject.toml", "[project]\nkeywords = [\n  \"a\",\n]\n[tool.ruff.lint]\nselect = 1\n",
			"[project]\nlicense = \"MIT\"\n[tool.black]\n", true},
		{"pyproject.toml", "[project]\nauthors = []\ndependencies = [\"a\"]\n", "[project]\ndependencies = [\"b\"]\n", false},
		{"pyproject.toml", "[tool.pdm]\na = 1\n", "[tool.pdm]\na = 2\n", false},
		{"setup.cfg", "[metadata]\nclassifiers =\n    A\n[flake8]\nmax = 1\n[options]\nb = 1\n",
			"[metadata]\n[tool:pytest]\n[options]\nb = 1\n", true},
		{"Cargo.toml", "[package]\nversion = \"1\"\n", "[package]\nversion = \"2\"\n", true},
		{"Cargo.toml", "[dependencies.a]\nversion = \"1\"\n", "[dependencies.a]\nversion = \"2\"\n", false},
		{"Cargo.toml", "[dependencies]\nurl = \"1\"\n", "[dependencies]\nurl = \"2\"\n", false},
		{"pom.xml", "<project><!-- a --><version>1</version>\n<scm><tag>v1</tag></scm><parent><version>1</version></parent></project>",
			"<project>\n<version>2</version><name>A</name><parent>\n<version>1</version></parent></project>", true},
		{"pom.xml", "<project><parent><version>1</version></parent></project>",
			"<project><parent><version>2</version></parent></project>", false},
		{"pom.xml", "<project><a x='1'/></project>", "<project><a x='2'/></project>", false},
		{"pom.xml", "<project><version>1", "<project><version>2", false},
		{"a.gemspec", "  s.version = A\n  s.add_dependency 'b'\n", "  s.summary = 'x'\n  s.add_dependency 'b'\n", true},
		{"a.gemspec", "  s.add_dependency 'b'\n", "  s.add_dependency 'c'\n", false},
	} {
		strip := func(text string) string {
			return strings.Join(strings.Fields(string(installs(tc.file, []byte(text)))), " ")
		}
		if one, other := strip(tc.one), strip(tc.other); (one == other) != tc.same {
			t.Errorf("%s: %q and %q install the same: want %t", tc.file, one, other, tc.same)
		}
	}
}

// The base commit is set up, or the commit itself if it changes the manifests.
func TestSetUpCommit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ change, want string }{{"change a.txt x", "base"}, {"change go.mod 'require x'", "hash"}} {
		dir := history(t, `change go.mod 'module a.org/calc'; change calc.go 'package calc'; commit root
change calc.go 'const two = 2'; change calc_test.go 'package calc'; `+tc.change+`; commit 'two is missing'`)
		commits, err := Walk(t.Context(), dir, "", 1)
		if err != nil {
			t.Fatal(err)
		}
		c := Candidate{Commit: commits[0]}
		s, err := Builder{Repository: dir, Machine: project.Container()}.SetUp(t.Context(), c)
		if want := map[string]string{"base": c.Base, "hash": c.Hash}[tc.want]; err != nil || s.Spec.Commit != want {
			t.Errorf("%s: %s is set up, %v, want %s", tc.change, s.Spec.Commit, err, want)
		}
	}
}

// drafted returns the draft of a repository's only candidate, and the newest commit.
func drafted(t *testing.T, dir string) (d Draft, newest Commit) {
	t.Helper()
	commits, err := Walk(t.Context(), dir, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	candidates, _, err := Choose(t.Context(), dir, commits, Bounds{})
	if err != nil || len(candidates) != 1 {
		t.Fatal(candidates, err)
	}
	b := Builder{Repository: dir, Name: "calc", Machine: project.Container()}
	d, why, err := b.Draft(t.Context(), candidates[0], Installation{})
	if err != nil || why != "" {
		t.Fatal(why, err)
	}
	return d, commits[0]
}

// A draft has the commit's own test files of every kind, and the settings that old commits need today.
func TestDraft(t *testing.T) {
	t.Parallel()
	dir := history(t, `change setup.cfg '[tool:pytest]'; change setup.cfg 'addopts = --cov=calc'; change setup.py 'setup(use_scm_version={"write_to": "calc/_version.py"})'
change calc.py 'a = 1'; change tests/test_calc.py 'def test_a(): pass'; change tests/old_test.py x; commit root
change calc.py 'b = 1'; change tests/test_calc.py 'def test_b(): pass'; change tests/data.json '{}'
printf '\377\000' >tests/raw.bin; ln -s data.json tests/link
git rm -q tests/old_test.py; git add -A; commit 'b is missing from it'`)
	testkit.WriteFile(t, filepath.Join(dir, "LICENSE"), "not committed")
	d, newest := drafted(t, dir)
	tests := d.Task.Tests
	if tests.Files["tests/test_calc.py"] != "def test_a(): pass\ndef test_b(): pass\n" ||
		tests.Files["tests/data.json"] == "" || len(tests.Files) != 2 {
		t.Errorf("files are %v", tests.Files)
	}
	for _, want := range []string{
		"rm -f -- 'tests/old_test.py'\n", "ln -sfn -- 'data.json' 'tests/link'\n",
		"base64 -d >'tests/raw.bin' <<'END_OF_DATA'\n/wA=\n",
		": '>>>>> Start Test Output'\npython3 -m pytest -rA --color=no -p no:cacheprovider 'tests/test_calc.py'\n",
	} {
		if !strings.Contains(tests.Script, want) {
			t.Errorf("%q is missing in\n%s", want, tests.Script)
		}
	}
	if !slices.Equal(d.Task.Env, []string{"PYTHONHASHSEED=0", "PYTEST_ADDOPTS=-o addopts="}) || d.Task.Labels["mended"] != "addopts version" ||
		len(d.Task.Prepare) != 1 || !strings.HasPrefix(d.Task.Prepare[0], "test -e 'calc/_version.py' || printf '") ||
		!strings.Contains(d.BaseScript, "'tests/test_calc.py'") || strings.Contains(d.BaseScript, "old_test") {
		t.Errorf("%v %v\n%s", d.Task.Env, d.Task.Labels, d.BaseScript)
	}
	if Licence(t.Context(), dir, newest.Hash) != "" {
		t.Error("a licence that is not committed")
	}
}

// A commit from before Go modules gets a go.mod, but not the machine's modules, which may be of later versions.
func TestDraftBeforeModules(t *testing.T) {
	t.Parallel()
	dir := history(t, `change calc.go 'package calc'; change calc_test.go 'package calc'; commit root
change calc.go 'const two = 2'; change calc_test.go '// Two'; commit 'two is missing'
change go.mod 'module a.org/calc'; change calc.go '// M'; commit modules`)
	d, _ := drafted(t, dir)
	if !slices.Equal(d.Task.Env, []string{"GOMODCACHE=/testbed/.deps/go"}) || d.Task.Labels["mended"] != "go.mod" ||
		!strings.Contains(d.Task.Prepare[0], "'a.org/calc'") {
		t.Errorf("%v %v %q", d.Task.Env, d.Task.Labels, d.Task.Prepare)
	}
}

// Current compilers reject Java versions before 8, so 8 takes their place, and have no place for Error Prone's old one.
// A change may add these.
func TestEditPoms(t *testing.T) {
	t.Parallel()
	const old = "<project><properties><version.jdk>1.6</version.jdk>\n<javax.inject.version>1</javax.inject.version>\n" +
		"<java.ee.version>7</java.ee.version><version>1.5</version></properties>" +
		"<source>${version.jdk}</source><target> 1.7 </target><maven.compiler.testRelease>5</maven.compiler.testRelease>" +
		"<compilerId>javac-with-errorprone</compilerId></project>"
	const young = "<project><source>1.8</source><version.jdk>11</version.jdk></project>"
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "pom.xml"), young)
	if line, mended := editPoms(dir); line != "" || mended != nil {
		t.Errorf("nothing is old, but %s for %s", line, mended)
	}
	testkit.WriteFile(t, filepath.Join(dir, "a/b/pom.xml"), "<source>1.6</source><compilerId>javac-with-errorprone</compilerId>")
	line, mended := editPoms(dir)
	if !slices.Equal(mended, []string{"java", "compiler"}) {
		t.Error(mended)
	}
	run := exec.CommandContext(t.Context(), "sh", "-ec", line)
	testkit.WriteFile(t, filepath.Join(dir, "a/b/pom.xml"), old)
	run.Dir = dir
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := strings.NewReplacer("k>1.6<", "k>8<", "> 1.7 <", ">8<", "testRelease>5<", "testRelease>8<", "javac-with-errorprone", "javac").
		Replace(old)
	for name, want := range map[string]string{"pom.xml": young, "a/b/pom.xml": want} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %s, %v, want %s", name, got, err, want)
		}
	}
}

// A commit that current compilers cannot build is mended in the set-up and in its task. If the commit changes the same
// file, it is mended after the change.
func TestDraftOldJava(t *testing.T) {
	t.Parallel()
	for change, after := range map[string]bool{"change src/main/java/B.java '//'": false, "change pom.xml '<!-- -->'": true} {
		dir := history(t, `change pom.xml '<source>1.5</source>'; change src/main/java/A.java 'class A {}'; commit root
change src/main/java/A.java 'class Two {}'; change src/test/java/ATest.java '// Two'; `+change+`; commit 'two is missing'`)
		d, newest := drafted(t, dir)
		s, err := Builder{Repository: dir}.SetUp(t.Context(), Candidate{Commit: newest, Labels: d.Task.Labels})
		if err != nil || len(d.Task.Prepare) != 1 || d.Task.Labels["mended"] != "java" {
			t.Fatalf("%q, %v, %v", d.Task.Prepare, d.Task.Labels, err)
		}
		line := d.Task.Prepare[0]
		if slices.Contains(d.Task.Tests.Prepare, line) == after || strings.Contains(d.Task.Tests.Script, line) != after ||
			!slices.Contains(s.Before, line) {
			t.Errorf("%s: %q and\n%s\nset-up: %q", change, d.Task.Tests.Prepare, d.Task.Tests.Script, s.Before)
		}
	}
}

// What is installed in the repository is shown, unless it comes from an image or an active environment.
func TestShows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, ".venv/bin/python"), "")
	testkit.WriteFile(t, filepath.Join(dir, "node_modules/a/node_modules/b/index.js"), "")
	testkit.WriteFile(t, filepath.Join(dir, "packages/c/node_modules/d/index.js"), "")
	testkit.WriteFile(t, filepath.Join(dir, "packages/new/node_modules/d/index.js"), "")
	for name, tc := range map[string]struct {
		b        Builder
		language string
		want     []string
	}{
		"python":         {Builder{}, "python", []string{".venv"}},
		"javascript":     {Builder{}, "typescript", []string{"node_modules"}},
		"an image":       {Builder{Image: "i"}, "python", nil},
		"an active one":  {Builder{Machine: project.Machine{VirtualEnv: "/v"}}, "python", nil},
		"in the commit":  {Builder{}, "javascript", nil},
		"other packages": {Builder{Machine: project.Machine{VirtualEnv: "/v"}}, "javascript", []string{"node_modules"}},
		"a workspace":    {Builder{}, "typescript", []string{"node_modules", "packages/c/node_modules"}},
	} {
		base := t.TempDir()
		if name == "a workspace" {
			testkit.WriteFile(t, filepath.Join(base, "packages/c/package.json"), "{}")
		}
		if name == "in the commit" {
			testkit.WriteFile(t, filepath.Join(base, "node_modules/b.js"), "")
		}
		tc.b.Repository = dir
		got, err := tc.b.shows(base, tc.language, "")
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		for _, name := range got {
			if to, err := os.Readlink(filepath.Join(base, name)); to != filepath.Join(dir, name) {
				t.Errorf("%s leads to %q: %v", name, to, err)
			}
		}
	}
}

// Tasks of one commit for two paths have two names.
func TestTitle(t *testing.T) {
	t.Parallel()
	for below, want := range map[string]string{"": "calc", "packages/a b": "calc-packages-a-b", "./a/": "calc-a"} {
		if got := Title("calc", below); got != want {
			t.Errorf("%q: %s, want %s", below, got, want)
		}
	}
}
