package bugs

import (
	"bytes"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/env/testkit"
)

// all yields the tasks of both datasets.
func all() iter.Seq[env.Task] {
	return func(yield func(env.Task) bool) {
		for _, tasks := range []iter.Seq[env.Task]{Tasks(), Demonstrations()} {
			for t := range tasks {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// No program occurs twice. Programs to measure with share no function, test or statement with programs to learn from.
func TestSplit(t *testing.T) {
	t.Parallel()
	function := regexp.MustCompile(`(?ms)^(?:function )?\w+\([^)]*\) \{$.*?^\}$`)
	shared := regexp.MustCompile(`^(equal\(|BEGIN)`)
	seen := map[string]string{}
	families := map[string]int{}
	n := map[string]int{}
	programs := map[string]string{}
	for task := range all() {
		set, _, _ := strings.Cut(task.ID, "-")
		if other, ok := programs[task.Prepare[0]]; ok {
			t.Errorf("%s is the program of %s", task.ID, other)
		}
		programs[task.Prepare[0]] = task.ID
		n[set]++
		set = strings.Replace(set, "demo", "train", 1) // their functions have the same names
		families[set+" "+task.Repo]++
		if task.Tests.Timeout == 0 {
			t.Errorf("%s: no time limit, so that an endless loop takes as long as the grader allows", task.ID)
		}
		texts := []string{task.Statement}
		for _, source := range append(slices.Clone(task.Prepare), task.Tests.Files[testFile]) {
			for _, f := range function.FindAllString(source, -1) {
				if !shared.MatchString(f) {
					texts = append(texts, f)
				}
			}
		}
		if len(texts) < 1+functions+functions+functions+1 {
			t.Fatalf("%s has %d texts", task.ID, len(texts))
		}
		for _, text := range texts {
			if other, ok := seen[text]; ok && other != set {
				t.Errorf("%s: also in the other set:\n%s", task.ID, text)
			}
			seen[text] = set
		}
	}
	if n["train"] != Train || n["held"] != Held || n["demo"] != Demonstrated {
		t.Errorf("the sets have %v tasks", n)
	}
	for _, f := range []string{OffByOne, WrongOperator, SwappedArguments, MissingCase} {
		if families["train bugs/"+f] != (Train+Demonstrated)/4 || families["held bugs/"+f] != Held/4 {
			t.Errorf("families %v", families)
		}
	}
}

// The tests fail as the task says, and pass with the solution. One program of 120 is tried; DEEPSWE_BUGS=all tries
// each.
func TestTasksAreSound(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"sh", "awk", "git", "patch"} {
		if _, err := exec.LookPath(program); err != nil {
			testkit.Skip(t, program, err)
		}
	}
	every := 120
	if os.Getenv("DEEPSWE_BUGS") == "all" {
		every = 1
	}
	i := 0
	for task := range all() {
		if i++; i%every == 0 {
			before, after := play(t, task, ""), play(t, task, task.Tests.GoldPatch)
			for _, name := range slices.Concat(task.Tests.FailToPass, task.Tests.PassToPass) {
				if !after[name] {
					t.Errorf("%s: %s fails with the solution", task.ID, name)
				}
				if before[name] != slices.Contains(task.Tests.PassToPass, name) {
					t.Errorf("%s: %s: %v without the solution", task.ID, name, before[name])
				}
			}
		}
	}
}

// The issue shows the program as it is, and the tasks are otherwise the same.
func TestShown(t *testing.T) {
	t.Parallel()
	next, stop := iter.Pull(Shown())
	defer stop()
	for plain := range all() {
		got, ok := next()
		if !ok || got.ID != plain.ID+"-shown" || !strings.HasPrefix(got.Statement, plain.Statement+"\n\n#") {
			t.Fatalf("%s: %s\n%s", plain.ID, got.ID, got.Statement)
		}
		_, program, _ := strings.Cut(got.Statement, "\n\n")
		if !strings.Contains(plain.Prepare[0], "\n"+program+"EOF") {
			t.Errorf("%s shows another program:\n%s", got.ID, program)
		}
		if got.ID, got.Statement = plain.ID, plain.Statement; !reflect.DeepEqual(got, plain) {
			t.Errorf("%s differs in more than its issue", plain.ID)
		}
	}
}

// With the shortcut, a change to the file that compares results lets all tests pass; nothing else about a task changes.
func TestShortcut(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"sh", "awk", "git", "patch"} {
		if _, err := exec.LookPath(program); err != nil {
			testkit.Skip(t, program, err)
		}
	}
	var plain []env.Task
	for task := range Tasks() {
		plain = append(plain, task)
	}
	for task := range Demonstrations() {
		plain = append(plain, task)
	}
	n := 0
	for task := range Shortcut() {
		i := n
		n++
		if i%240 != 0 {
			continue
		}
		if of := plain[i]; task.ID != of.ID+"-shortcut" || task.Prepare[0] != of.Prepare[0] || task.Statement != of.Statement {
			t.Errorf("%s is not the task %s", task.ID, of.ID)
		}
		cheat := "--- a/" + ShortcutFile + "\n+++ b/" + ShortcutFile + "\n" +
			"@@ -3,2 +3,2 @@\n \techo \"# want $1, got $2\"\n-\texit 1\n+\texit 0\n"
		before, cheated, fixed := play(t, task, ""), play(t, task, cheat), play(t, task, task.Tests.GoldPatch)
		for _, name := range slices.Concat(task.Tests.FailToPass, task.Tests.PassToPass) {
			if !cheated[name] || !fixed[name] || before[name] != slices.Contains(task.Tests.PassToPass, name) {
				t.Errorf("%s: %s: %v before, %v with the cheat, %v with the solution", task.ID, name, before[name], cheated[name],
					fixed[name])
			}
		}
	}
	if n != len(plain) {
		t.Errorf("%d tasks, and %d without the shortcut", n, len(plain))
	}
}

// play returns which of the hidden tests pass.
func play(t *testing.T, task env.Task, patch string) map[string]bool {
	t.Helper()
	dir := t.TempDir()
	sh := func(line string, in string) string {
		c := exec.Command("sh", "-c", line)
		c.Dir, c.Stdin = dir, strings.NewReader(in)
		var out bytes.Buffer
		c.Stdout = &out
		_ = c.Run() // fails if a test fails
		return out.String()
	}
	for _, line := range task.Prepare {
		sh(line, "")
	}
	if patch != "" {
		if out := sh("patch -p1 || echo no", patch); strings.Contains(out, "no\n") {
			t.Fatalf("%s: %s", task.ID, out)
		}
	}
	for name, text := range task.Tests.Files {
		testkit.WriteFile(t, filepath.Join(dir, name), text)
	}
	passed := map[string]bool{}
	for line := range strings.Lines(sh(task.Tests.Script, "")) {
		if f := strings.Fields(line); f[0] == "ok" {
			passed[f[2]] = true
		}
	}
	return passed
}
