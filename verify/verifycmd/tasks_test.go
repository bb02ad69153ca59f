package verifycmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"deepswe/env"
	"deepswe/env/testkit"
)

const (
	tasksDir  = "../../testdata/tasks"
	tasksFile = tasksDir + "/tasks.jsonl"
	bookworm  = "deepswe-test:bookworm"
	busybox   = "deepswe-test:busybox"
)

// repository is one of the small repositories in testdata/tasks: a history, the commit that fixes its bug, and how it
// is tested. In the archive, commit N has sections N/FILE and the last commit has fix/FILE. A few other sections have
// no directory.
type repository struct {
	name    string
	commits []commit // the last one is the fix
	issue   string
	script  string
	parser  string
	f2p     []string
	p2p     []string
}

type commit struct {
	message string
	files   map[string]string // the files that it changes or adds
}

func readRepository(t testing.TB, file string) repository {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := repository{name: strings.TrimSuffix(filepath.Base(file), ".txtar")}
	commits := map[string]*commit{}
	var order []string
	for _, f := range txtar.Parse(data).Files {
		content := string(f.Data)
		switch dir, name, inside := strings.Cut(f.Name, "/"); {
		case inside:
			if commits[dir] == nil {
				commits[dir] = &commit{files: map[string]string{}}
				order = append(order, dir)
			}
			if name == "COMMIT" {
				commits[dir].message = strings.TrimSpace(content) + "\n"
			} else {
				commits[dir].files[name] = content
			}
		case f.Name == "issue.md":
			r.issue = content
		case f.Name == "eval.sh":
			r.script = content
		case f.Name == "parser":
			r.parser = strings.TrimSpace(content)
		case f.Name == "fail_to_pass":
			r.f2p = strings.Split(strings.TrimSpace(content), "\n")
		case f.Name == "pass_to_pass":
			r.p2p = strings.Split(strings.TrimSpace(content), "\n")
		default:
			t.Fatalf("%s: no section is called %s", file, f.Name)
		}
	}
	for _, dir := range order {
		r.commits = append(r.commits, *commits[dir])
	}
	return r
}

// stream returns the history for git fast-import. The same bytes give the same hashes everywhere.
func (r repository) stream() string {
	var b strings.Builder
	text := func(s string) { fmt.Fprintf(&b, "data %d\n%s\n", len(s), s) }
	for i, c := range r.commits {
		ref := "refs/heads/main"
		if i == len(r.commits)-1 {
			ref = "refs/heads/fix"
		}
		fmt.Fprintf(&b, "commit %s\nmark :%d\ncommitter A Maintainer <maintainer@example.com> %d +0000\n", ref, i+1,
			1700000000+i*86400)
		text(c.message)
		if i > 0 {
			fmt.Fprintf(&b, "from :%d\n", i)
		}
		for _, name := range slices.Sorted(maps.Keys(c.files)) {
			fmt.Fprintf(&b, "M 100644 inline %s\n", name)
			text(c.files[name])
		}
	}
	return b.String() + "done\n"
}

// isTest reports whether a file of these repositories is a test.
func isTest(name string) bool {
	return strings.HasPrefix(name, "test") || strings.HasSuffix(name, "_test.go")
}

// task makes the record. The sandbox creates the repository from the history in it, so the image needs only git and a
// toolchain. As in real images, the agent's sandbox begins with the fix in the history.
func (r repository) task(t testing.TB) env.Task {
	t.Helper()
	dir := t.TempDir()
	git := func(stdin string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, stderr.String())
		}
		return string(out)
	}
	git("", "init", "-q", "--bare", ".")
	git(r.stream(), "fast-import", "--quiet", "--done")
	base := strings.TrimSpace(git("", "rev-parse", "main"))
	fix := r.commits[len(r.commits)-1].files
	// All test files as of the fix: those that it changes, and those that must still pass.
	hidden := map[string]string{}
	var tests, code []string
	for _, c := range r.commits {
		for name, content := range c.files {
			if isTest(name) {
				hidden[name] = content
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fix)) {
		if isTest(name) {
			tests = append(tests, name)
		} else {
			code = append(code, name)
		}
	}
	diff := func(names []string) string {
		if len(names) == 0 {
			return "" // without names, git would compare all files
		}
		return git("", append([]string{"diff", "--no-color", "--no-ext-diff", "main", "fix", "--"}, names...)...)
	}
	prepare := []string{
		"git init -q . && git fast-import --quiet --done <<'END_OF_HISTORY'\n" + r.stream() + "END_OF_HISTORY",
		"git checkout -q --detach " + base,
	}
	return env.Task{
		ID: "deepswe__" + r.name, Source: "deepswe", Repo: "deepswe/" + r.name, BaseCommit: base, Statement: r.issue,
		Image: bookworm, Dir: "/testbed", Prepare: prepare,
		Tests: env.Tests{
			FailToPass: r.f2p, PassToPass: r.p2p, Script: r.script, Parser: r.parser, EvalType: "pass_and_fail",
			Files: hidden, Prepare: prepare, GoldPatch: diff(code), TestPatch: diff(tests),
		},
	}
}

// repositories makes the tasks of testdata/tasks from their archives.
func repositories(t testing.TB) []env.Task {
	t.Helper()
	files, err := filepath.Glob(tasksDir + "/*.txtar")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %q, %v", files, err)
	}
	var tasks []env.Task
	for _, f := range files {
		tasks = append(tasks, readRepository(t, f).task(t))
	}
	return tasks
}

// tasks.jsonl holds the records of the archives beside it.
func TestTasksFile(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, task := range repositories(t) {
		if err := enc.Encode(task); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Golden(t, tasksFile, b.Bytes())
}
