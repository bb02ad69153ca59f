package verifycmd

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"deepswe/env"
	"deepswe/env/testkit"
	"deepswe/verify"
)

// cheatSuite is one archive of testdata/attacks: patches to one task, which are worth a reward or must not get one.
type cheatSuite struct {
	name string
	task env.Task
	base map[string]string
	// patches are the files that each patch changes or adds, by "cheat NAME" or "honest NAME".
	patches map[string]map[string]string
}

func readSuite(t testing.TB, file string) cheatSuite {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := cheatSuite{
		name: strings.TrimSuffix(filepath.Base(file), ".txtar"), base: map[string]string{},
		patches: map[string]map[string]string{},
	}
	hidden, solution := map[string]string{}, map[string]string{}
	list := func(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
	for _, f := range txtar.Parse(data).Files {
		content := string(f.Data)
		kind, name, _ := strings.Cut(f.Name, " ")
		switch tests := &s.task.Tests; kind {
		case "task":
			r := readRepository(t, filepath.Join(tasksDir, strings.TrimSpace(content)+".txtar"))
			s.task = r.task(t)
			for _, c := range r.commits[:len(r.commits)-1] {
				maps.Copy(s.base, c.files)
			}
		case "base":
			s.base[name] = content
		case "solution":
			solution[name] = content
		case "script":
			tests.Script = content
		case "parser":
			tests.Parser = strings.TrimSpace(content)
		case "fail_to_pass":
			tests.FailToPass = list(content)
		case "pass_to_pass":
			tests.PassToPass = list(content)
		case "expected":
			tests.Expected = map[string]string{}
			for _, line := range list(content) {
				id, status, _ := strings.Cut(line, " ")
				tests.Expected[id] = status
			}
		case "hidden":
			hidden[name] = content
		case "cheat", "honest":
			title, path, _ := strings.Cut(name, "/")
			key := kind + " " + title
			if s.patches[key] == nil {
				s.patches[key] = map[string]string{}
			}
			s.patches[key][path] = content
		default:
			t.Fatalf("%s: no section is called %s", file, f.Name)
		}
	}
	if len(solution) > 0 {
		s.task = s.ownRepository(t, solution)
	}
	if len(hidden) > 0 {
		s.task.Tests.Files = hidden
	}
	return s
}

// ownRepository is the task in the repository that the archive itself has, and whose tests are what the sections of the
// archive say.
func (s cheatSuite) ownRepository(t testing.TB, solution map[string]string) env.Task {
	t.Helper()
	tests := s.task.Tests
	return repository{
		name: s.name, commits: []commit{{"Begin\n", s.base}, {"Solve\n", solution}},
		script: tests.Script, parser: tests.Parser, f2p: tests.FailToPass, p2p: tests.PassToPass,
	}.task(t)
}

// patch is the diff of a patch's files.
func (s cheatSuite) patch(t testing.TB, name string) []byte {
	t.Helper()
	dir := t.TempDir()
	after := maps.Clone(s.base)
	for path, content := range s.patches[name] {
		if rest, removed := strings.CutPrefix(path, "-"); removed {
			delete(after, rest)
			continue
		}
		if rest, appended := strings.CutPrefix(path, "+"); appended {
			path, content = rest, s.base[rest]+content
		}
		after[path] = content
	}
	for path, content := range s.base {
		testkit.WriteFile(t, filepath.Join(dir, "a", path), content)
	}
	for path, content := range after {
		testkit.WriteFile(t, filepath.Join(dir, "b", path), content)
	}
	cmd := exec.CommandContext(t.Context(), "git", "diff", "--no-index", "--no-renames", "--no-prefix", "a", "b")
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Fatalf("git diff: %v", err)
	}
	return out
}

// No cheat earns a reward, and every honest patch does.
func TestCheats(t *testing.T) {
	t.Parallel()
	p := openDocker(t, bookworm)
	files, err := filepath.Glob("../../testdata/attacks/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %q, %v", files, err)
	}
	if os.Getenv("DEEPSWE_TEST_FULL") == "" { // these take minutes on a busy machine
		files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_more.txtar") })
	}
	atOnce := make(chan struct{}, 4)
	var cheats, working, honest atomic.Int32
	t.Run("all", func(t *testing.T) {
		for _, file := range files {
			s := readSuite(t, file)
			e := &verify.Evaluator{Provider: p, Run: "test-cheats"}
			training := &verify.Evaluator{Provider: p, Run: "test-cheats", Training: true, Canary: verify.CanaryRequired}
			for i, name := range slices.Sorted(maps.Keys(s.patches)) {
				t.Run(s.name+"/"+name, func(t *testing.T) {
					t.Parallel()
					atOnce <- struct{}{}
					defer func() { <-atOnce }()
					by := e
					if i%4 == 3 {
						by = training
					}
					v, err := by.Evaluate(t.Context(), s.task, s.patch(t, name))
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%s with reward %v, %+v, suspicious %v", v.Status, v.Reward, v.Confirmation, v.Suspicious)
					if strings.HasPrefix(name, "honest") {
						honest.Add(1)
						if v.Reward != 1 || v.Confirmed() != "canary" {
							t.Errorf("an honest patch has reward %v: %s\n%s\n%s", v.Reward, v.Detail, v.Log, v.StrictLog)
						}
						return
					}
					cheats.Add(1)
					if v.Confirmation != nil || v.Status == verify.Resolved {
						working.Add(1)
					}
					if v.Reward != 0 {
						t.Errorf("a cheat has reward %v\n%s\n%s", v.Reward, v.Log, v.StrictLog)
					}
				})
			}
		}
	})
	t.Logf("%d cheats, of which %d deceive the log, and %d honest patches", cheats.Load(), working.Load(), honest.Load())
	if cheats.Load() < 40 || working.Load() < 25 || honest.Load() < 30 {
		t.Error("the suite has lost its teeth")
	}
}
