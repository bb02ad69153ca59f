package mine

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env/testkit"
)

// A module of tests is told from the code around it.
func TestApart(t *testing.T) {
	t.Parallel()
	const old = "#[cfg(test)]\nmod tests {\n    fn a() {}\n}\n"
	const now = "#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn a() {}\n    fn b() {}\n}\n"
	for name, c := range map[string]struct {
		before, after, code, tests string
		ok                         bool
	}{
		"both change":        {"fn x() {}\n\n" + old, "fn y() {}\n\n" + now, "fn y() {}\n\n" + old, now, true},
		"code comes after":   {old + "fn x() {}\n", now + "fn y() {}\n", old + "fn y() {}\n", now, true},
		"the first tests":    {"fn x() {}\n", "fn y() {}\n" + now, "fn y() {}\n", now, true},
		"a new file":         {"", "fn y() {}\n" + now, "fn y() {}\n", now, true},
		"only code":          {"fn x() {}\n" + old, "fn y() {}\n" + old, "", "", false},
		"no tests":           {"fn x() {}\n", "fn y() {}\n", "", "", false},
		"two modules":        {old, old + now, "", "", false},
		"a function of them": {"", "#[cfg(test)]\nfn only() {}\n", "", "", false},
	} {
		code, tests, ok := apart(c.before, c.after)
		if ok != c.ok || ok && (code != c.code || tests != c.tests) {
			t.Errorf("%s: %q, %q, %t", name, code, tests, ok)
		}
	}
}

// Tests within a source are tests of the task: they are not in its solution, and come into the agent's file.
func TestInlineTests(t *testing.T) {
	t.Parallel()
	const half = "pub fn half(n: u32) -> u32 {\n    n / %s\n}\n\n#[cfg(test)]\nmod tests {\n    fn even() {}\n%s}\n"
	write := func(by, tests string) string {
		return "cat >src/lib.rs <<'EOF'\n" + strings.NewReplacer("/ %s", "/ "+by, "%s}", tests+"}").Replace(half) + "EOF\n"
	}
	dir := history(t, "mkdir src; touch Cargo.toml\n"+write("3", "")+"git add -A; commit root\n"+
		write("2", "    fn odd() {}\n")+"git add -A; commit 'Halves are thirds'\n"+
		write("2", "    fn odd() {}\n    fn zero() {}\n")+"git add -A; commit 'Only tests'\n"+
		write("1", "    fn odd() {}\n    fn zero() {}\n")+"git add -A; commit 'No tests'")
	candidates, unfit := candidatesOf(t, dir, 3)
	if len(candidates) != 1 || unfit[NoTests] != 1 || unfit[NoSources] != 1 {
		t.Fatalf("%d candidates, %v", len(candidates), unfit)
	}
	c := candidates[0]
	if !strings.Contains(c.Sources, "+    n / 2") || strings.Contains(c.Sources, "odd") ||
		!strings.Contains(c.Tests, "+    fn odd") || strings.Contains(c.Tests, "+    n / 2") || c.Labels["inline"] != "yes" {
		t.Errorf("sources %s, tests %s", c.Sources, c.Tests)
	}
	d, why, err := Builder{Repository: dir, Name: "calc"}.Draft(t.Context(), c, Installation{})
	if err != nil || why != "" || !strings.Contains(d.Task.Tests.Script, "\nenv CARGO_BUILD_RUSTFLAGS=--cap-lints=warn cargo test ") {
		t.Fatalf("%s, %v: %s", why, err, d.Task.Tests.Script)
	}

	// The agent's file has other code and other tests.
	at := t.TempDir()
	testkit.WriteFile(t, filepath.Join(at, "src/lib.rs"),
		"fn mine() {}\n#[cfg(test)]\nfn helper() {}\n#[cfg(test)]\nmod tests {\n    fn own() {}\n}\nfn more() {}\n")
	testkit.WriteFile(t, filepath.Join(at, ".modules/src/lib.rs"), d.Task.Tests.Files[".modules/src/lib.rs"])
	script, _, _ := strings.Cut(d.Task.Tests.Script, "\nenv CARGO_BUILD_RUSTFLAGS=--cap-lints=warn cargo test ")
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	command.Dir = at
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(filepath.Join(at, "src/lib.rs"))
	const want = "fn mine() {}\n#[cfg(test)]\nfn helper() {}\nfn more() {}\n" +
		"#[cfg(test)]\nmod tests {\n    fn even() {}\n    fn odd() {}\n}\n"
	if err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}

// The features that count are those of added lines and of whole files, but none that must be off.
func TestFeatures(t *testing.T) {
	t.Parallel()
	c := Candidate{Tests: "+#[cfg(feature = \"drain\")]\n-#[cfg(feature = \"old\")]\n #[cfg(feature = \"context\")]\n" +
		"+#[cfg(all(feature = \"std\", not(feature = \"loom\")))]\n+#[cfg(feature = \"drain\")]\n"}
	got := c.features(map[string]string{
		"tests/a.rs": "#![cfg(feature=\"serde\")]\n#[cfg(feature = \"each\")]\n", "tests/a.txt": "#![cfg(feature = \"b\")]\n",
	})
	if want := []string{"drain", "std", "serde"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
