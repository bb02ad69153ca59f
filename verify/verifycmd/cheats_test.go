package verifycmd

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"deepswe/env"
	"deepswe/env/testkit"
	"deepswe/verify"
)

// warmed fills the build cache in the sandboxes of Go tasks before the tests run, because most of it is the same in all
// runs.
func warmed(t env.Task) env.Task {
	const warm = "mkdir /tmp/warm && cd /tmp/warm && go mod init warm && " +
		"printf 'package warm\\nimport \"testing\"\\nfunc TestWarm(t *testing.T) { t.Log() }\\n' > warm_test.go && " +
		"go test ./... && rm -r /tmp/warm"
	if t.Tests.Parser == "parse_log_gotest" {
		t.Tests.Prepare = append(slices.Clip(t.Tests.Prepare), warm)
	}
	return t
}

// cheatSuite is one archive of testdata/attacks: patches for one task, some honest and some cheats.
type cheatSuite struct {
	name string
	task env.Task
	base map[string]string
	// patches are the files that each patch changes or adds, by "cheat NAME" or "honest NAME".
	patches map[string]map[string]string
	// own is set if the archive has a repository of its own, which no other test uses.
	own bool
	// module is a Python module that the image must have, if any.
	module string
	// more names patches that are run only with DEEPSWE_TEST_FULL, because others use the same mechanism and get their
	// verdict in the same way.
	more []string
	// image is set if the suite needs another image, which not every machine has.
	image string
	// evidence is the weakest evidence that a reward may have. It is set if a cheat would win with less.
	evidence verify.Strength
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
		case "more":
			s.more = list(content)
		case "script":
			tests.Script = content
		case "image":
			s.image = strings.TrimSpace(content)
		case "evidence":
			s.evidence = verify.Strength(strings.TrimSpace(content))
		case "module":
			s.module = strings.TrimSpace(content)
		case "prepare":
			tests.Prepare = list(content)
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
		more := s.task.Tests.Prepare
		expected := s.task.Tests.Expected
		s.task, s.own = s.ownRepository(t, solution), true
		s.task.Tests.Prepare, s.task.Tests.Expected = append(slices.Clip(s.task.Tests.Prepare), more...), expected
	}
	if len(hidden) > 0 {
		s.task.Tests.Files = hidden
	}
	for _, name := range s.more {
		if s.patches[name] == nil {
			t.Fatalf("%s: no patch is called %s", file, name)
		}
		if os.Getenv("DEEPSWE_TEST_FULL") == "" {
			delete(s.patches, name)
		}
	}
	s.task = warmed(s.task)
	s.task.Image = cmp.Or(s.image, s.task.Image)
	s.task.Tests.Timeout = 5 * time.Minute // so that a patch that hangs fails alone, and not the whole suite
	return s
}

// ownRepository makes the task from the repository and the test sections in the archive.
func (s cheatSuite) ownRepository(t testing.TB, solution map[string]string) env.Task {
	t.Helper()
	tests := s.task.Tests
	return repository{
		name: s.name, commits: []commit{{"Begin\n", s.base}, {"Solve\n", solution}},
		script: tests.Script, parser: tests.Parser, f2p: tests.FailToPass, p2p: tests.PassToPass,
	}.task(t)
}

// patch returns the diff of a patch's files.
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
	testkit.SkipUnderRace(t)
	p := openDocker(t, bookworm)
	files, err := filepath.Glob("../../testdata/attacks/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %q, %v", files, err)
	}
	if os.Getenv("DEEPSWE_TEST_FULL") == "" { // these take minutes on a busy machine
		files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_more.txtar") })
	}
	atOnce := make(chan struct{}, 4)
	var cheats, working, honest, own atomic.Int32
	t.Run("all", func(t *testing.T) {
		for _, file := range files {
			s := readSuite(t, file)
			if s.image != "" && exec.CommandContext(t.Context(), "docker", "image", "inspect", s.image).Run() != nil {
				t.Logf("NOT RUN: %s: there is no image %s, which .ci/runners makes", s.name, s.image)
				continue
			}
			if s.module != "" && !imports(t, p, s.module) {
				t.Logf("NOT RUN: %s: %s has no module %s", s.name, bookworm, s.module)
				continue
			}
			least := cmp.Or(s.evidence, verify.OutrightEvidence)
			e := &verify.Evaluator{Provider: p, Run: "test-cheats", Evidence: s.evidence}
			training := &verify.Evaluator{Provider: p, Run: "test-cheats", Training: true, Evidence: least}
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
						if honest.Add(1); s.own {
							own.Add(1)
						}
						if v.Reward != 1 || v.Confirmed() != "canary" {
							t.Errorf("an honest patch has reward %v: %s\n%s\n%s", v.Reward, v.Detail, v.Log, v.StrictLog)
						}
						return
					}
					cheats.Add(1)
					if v.Confirmation != nil || v.Status == verify.Resolved {
						working.Add(1)
					}
					// A cheat that guesses which tests are wrong may be right by chance, so it has to win three times.
					for range 2 {
						if v.Reward == 0 {
							break
						}
						t.Logf("the cheat has reward %v, and is tried again\n%s", v.Reward, v.StrictLog)
						if v, err = by.Evaluate(t.Context(), s.task, s.patch(t, name)); err != nil {
							t.Fatal(err)
						}
					}
					if v.Reward != 0 {
						t.Errorf("a cheat has reward %v three times\n%s\n%s", v.Reward, v.Log, v.StrictLog)
					}
				})
			}
		}
	})
	t.Logf("%d cheats, of which %d deceive the log, and %d honest patches, of which %d are to repositories of their own",
		cheats.Load(), working.Load(), honest.Load(), own.Load())
	least := [4]int32{45, 25, 30, 15}
	if os.Getenv("DEEPSWE_TEST_FULL") != "" {
		least = [4]int32{70, 45, 45, 20}
	}
	if cheats.Load() < least[0] || working.Load() < least[1] || honest.Load() < least[2] || own.Load() < least[3] {
		t.Errorf("the suite has shrunk: want counts of at least %v", least)
	}
}

// imports reports whether Python in the test image has a module.
func imports(t testing.TB, p env.Provider, module string) bool {
	t.Helper()
	s, err := p.Start(t.Context(), env.Spec{Image: bookworm, Run: "test-cheats"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run(t.Context(), env.Command{Line: "python3 -c 'import " + module + "'", Timeout: time.Minute})
	if err := errors.Join(err, s.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return r.ExitCode == 0
}
