package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"deepswe/agent/cli"
	"deepswe/agent/llm/llmtest"
	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/env/local"
	"deepswe/env/testkit"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		main() // the test's own sandboxes execute this binary, too
	}
	testscript.Main(m, map[string]func(){"deepswe": main})
}

// TestScripts runs the command line as users do. Besides testscript's own commands there are
//
//	nearby PORT        starts a server of a model at the port, which the condition [free:PORT] reports to be free
//	endpoint FILE...   starts a model endpoint that answers with the files' texts, one after the other; judge:P answers
//	                   as a judge does that gives YES the probability P; key:K is the key that it wants,
//	                   call:TOOL a call without arguments
//	terminal FILE COMMAND...  runs a command on a terminal of 80 columns: a line "< TEXT" of the file waits until the
//	                   terminal shows the text, a line "> TEXT" types it, with an Enter unless a "\c" ends it; what is
//	                   shown is then in the file "shown", without colours
//	result FILE KEY V  checks a key of the last line of a file of JSON lines
//	waitfor FILE TEXT  waits until the file holds the text
//	static             makes deepswe a static program, as Docker needs it: the tests' own is not under the race detector
//
// the conditions [sandbox:bwrap] and [docker], which report whether these work here, and $TASKS, the bundled tasks.
func TestScripts(t *testing.T) {
	tasks, err := filepath.Abs("testdata/tasks/tasks.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	static := sync.OnceValues(func() (string, error) { return buildStatic(t.TempDir()) })
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			// The sandboxes of a script lie in its own directory, so that a leftover can be seen there.
			tmp := filepath.Join(e.WorkDir, "sandboxes")
			e.Setenv("TMPDIR", tmp)
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("GOCACHE", goEnv(t, "GOCACHE"))
			e.Setenv("GOFLAGS", "")
			e.Setenv("NO_PROXY", "127.0.0.1")
			e.Setenv("TASKS", tasks)
			if err := os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o755); err != nil {
				return err
			}
			return os.Mkdir(tmp, 0o755)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"endpoint": startEndpoint,
			"nearby": func(ts *testscript.TestScript, _ bool, args []string) {
				listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", args[0]))
				ts.Check(err)
				server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: llmtest.New()}}
				server.Start()
				ts.Defer(server.Close)
			},
			"waitfor":  waitFor,
			"terminal": onTerminal,
			"result":   checkResult,
			"static": func(ts *testscript.TestScript, _ bool, _ []string) {
				dir, err := static()
				ts.Check(err)
				ts.Setenv("PATH", dir+string(filepath.ListSeparator)+ts.Getenv("PATH"))
			},
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "sandbox:bwrap":
				return bwrapWorks(t), nil
			case "docker":
				return dockerWorks(t), nil
			case "race":
				return testkit.UnderRace, nil
			}
			if file, ok := strings.CutPrefix(cond, "file:"); ok {
				_, err := os.Stat(file)
				return err == nil, nil
			}
			if port, ok := strings.CutPrefix(cond, "free:"); ok {
				listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
				return err == nil && listener.Close() == nil, nil
			}
			_, err := exec.LookPath(cond)
			return err == nil, nil
		},
	})
}

func buildStatic(dir string) (string, error) {
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "deepswe"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func startEndpoint(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: endpoint FILE...")
	}
	var replies []llmtest.Reply
	key := ""
	for _, name := range args {
		if secret, ok := strings.CutPrefix(name, "key:"); ok {
			key = secret
			continue
		}
		if tool, ok := strings.CutPrefix(name, "call:"); ok {
			replies = append(replies, llmtest.UseTool(tool, "{}"))
			continue
		}
		if p, judge := strings.CutPrefix(name, "judge:"); judge {
			yes, err := strconv.ParseFloat(p, 64)
			ts.Check(err)
			replies = append(replies, llmtest.Judged(yes))
			continue
		}
		replies = append(replies, llmtest.Text(ts.ReadFile(name)))
	}
	fake := llmtest.New(replies...)
	fake.Key = key
	server := httptest.NewServer(fake)
	ts.Defer(server.Close)
	ts.Setenv("DEEPSWE_BASE_URL", server.URL+"/v1")
}

func onTerminal(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: terminal FILE COMMAND...")
	}
	var words []string
	for _, arg := range args[1:] {
		words = append(words, env.ShellQuote(arg))
	}
	cmd := exec.Command("script", "-qefc", strings.Join(words, " "), "/dev/null")
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{
		"PATH", "HOME", "TMPDIR", "GOCACHE", "NO_PROXY", "DEEPSWE_BASE_URL", "OPENAI_API_KEY", "OLLAMA_HOST",
		"LMSTUDIO_BASE_URL",
	} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Env = append(cmd.Env, "TERM=xterm", "SHELL=/bin/sh")
	in, err := cmd.StdinPipe()
	ts.Check(err)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	over := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer over.Stop()
	shown, seen := "", 0 // what was shown, and how much of it a wait has gone past
	more := func() bool {
		buffer := make([]byte, 4096)
		n, err := out.Read(buffer)
		shown += strings.ReplaceAll(ansi.Strip(string(buffer[:n])), "\r\n", "\n")
		return err == nil
	}
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		line = strings.TrimSuffix(line, "\n")
		if text, waits := strings.CutPrefix(line, "< "); waits {
			for !strings.Contains(shown[seen:], text) && more() {
			}
			at := strings.Index(shown[seen:], text)
			if at < 0 {
				ts.Fatalf("the terminal did not show %q but\n%s", text, shown)
			}
			seen += at + len(text)
			continue
		}
		text := strings.TrimPrefix(line, "> ") + "\n"
		_, err := io.WriteString(in, strings.TrimSuffix(text, "\\c\n"))
		ts.Check(err)
	}
	for more() {
	}
	err = cmd.Wait()
	ts.Check(os.WriteFile(ts.MkAbs("shown"), []byte(shown), 0o644))
	ts.Logf("%s", shown)
	if (err != nil) != neg {
		ts.Fatalf("%s: %v", args[1], err)
	}
}

func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitfor FILE TEXT")
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if data, err := os.ReadFile(ts.MkAbs(args[0])); err == nil && strings.Contains(string(data), args[1]) {
			return
		}
	}
	ts.Fatalf("%s did not come to hold %q", args[0], args[1])
}

// dockerWorks reports whether the image of the bundled tasks is here. Where DEEPSWE_TEST_REQUIRE names docker, it must
// be.
func dockerWorks(t *testing.T) bool {
	err := exec.CommandContext(t.Context(), "docker", "image", "inspect", "deepswe-test:bookworm").Run()
	if err != nil && testkit.Required("docker") {
		t.Errorf("DEEPSWE_TEST_REQUIRE names docker: %v", err)
	}
	return err == nil
}

// bwrapWorks reports whether bubblewrap sandboxes work here. Where DEEPSWE_TEST_REQUIRE names bwrap, they must.
func bwrapWorks(t *testing.T) bool {
	p, err := local.NewBwrap(local.Options{})
	if err != nil {
		if testkit.Required("bwrap") {
			t.Errorf("DEEPSWE_TEST_REQUIRE names bwrap: %v", err)
		}
		return false
	}
	return p.Close() == nil
}

func checkResult(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: result FILE KEY VALUE")
	}
	lines := strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n")
	var last map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		ts.Fatalf("the last line is no JSON object: %v", err)
	}
	if got := fmt.Sprint(last[args[1]]); got != args[2] {
		ts.Fatalf("%s is %s, want %s", args[1], got, args[2])
	}
}

// TestImportDirection holds the one rule of the house: a folder imports only from its own floor and the floors below
// it.
func TestImportDirection(t *testing.T) {
	floors := []string{"env", "tools", "agent", "verify", "rl"}
	floor := func(path string) int {
		path, ours := strings.CutPrefix(path, "deepswe/")
		if !ours {
			return -1
		}
		top, _, _ := strings.Cut(path, "/")
		return slices.Index(floors, top)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}",
		"./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		for _, imported := range fields[1:] {
			if from := floor(fields[0]); from >= 0 && floor(imported) > from {
				t.Errorf("%s imports %s, which is on a floor above it", fields[0], imported)
			}
		}
	}
}

// Every command line of the documentation and of the examples (code blocks, comments of configurations, --help) is one
// that deepswe accepts. Those of train are also executed, up to the printed configuration.
func TestDocumentedCommands(t *testing.T) {
	lines := documented(t)
	t.Chdir(t.TempDir())
	testkit.WriteFile(t, "mine.yaml", "environment: {name: frozenlake}\ntrainer: {name: embedded}\n")
	if len(lines) < 50 {
		t.Fatalf("only %d command lines are documented", len(lines))
	}
	slices.Sort(lines)
	for _, line := range slices.Compact(lines) {
		t.Run(line, func(t *testing.T) {
			// MY and ./mine.yaml stand for a configuration of the reader's own.
			args := arguments(t, strings.ReplaceAll(line, "--config MY ", "--config ./mine.yaml "))
			root := mustRoot(t)
			if args[0] == "train" && !slices.Contains(args, "--resume") {
				args = append(args, "--dry-run")
			} else {
				for _, c := range root.Commands() {
					c.RunE = func(*cobra.Command, []string) error { return nil }
				}
			}
			root.SetArgs(args)
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Errorf("deepswe %q: %v", args, err)
			}
		})
	}
}

// arguments returns those with which a shell's script calls deepswe.
func arguments(t *testing.T, script string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `deepswe() { printf '%s\n' "$@"; }; `+script).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// What the Job of docs/kubernetes starts, with the configurations in its ConfigMap: a run that begins, and one that
// goes on in the place of a pod that failed.
func TestTrainingJob(t *testing.T) {
	data, err := os.ReadFile("docs/kubernetes/train.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Data map[string]string // of the ConfigMap
		Spec struct {
			Template struct {
				Spec struct{ Containers []struct{ Args []string } }
			}
		}
	}
	var configs, job object // they come first
	objects := yaml.NewDecoder(bytes.NewReader(data))
	if err := errors.Join(objects.Decode(&configs), objects.Decode(&job)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range configs.Data {
		testkit.WriteFile(t, filepath.Join(dir, "config", "deepswe", name), text)
	}
	w := cli.World{Getenv: func(name string) string {
		return map[string]string{"XDG_CONFIG_HOME": filepath.Join(dir, "config")}[name]
	}}
	if c, err := w.LoadConfig(); err != nil || c.Kubernetes == nil {
		t.Errorf("config.yaml configures %+v, %v", c, err)
	}
	script := strings.NewReplacer("exec /deepswe", "deepswe", "/config/", dir+"/config/", "/runs/", dir+"/runs/").
		Replace(job.Spec.Template.Spec.Containers[0].Args[0])
	for _, resumes := range []bool{false, true} {
		if resumes {
			testkit.WriteFile(t, filepath.Join(dir, "runs", "one", "manifest.json"), "{}")
		}
		args := arguments(t, script)
		if slices.Contains(args, "--resume") != resumes {
			t.Errorf("it starts deepswe %q", args)
		}
		root := mustRoot(t)
		root.SetArgs(append(args, "--dry-run"))
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("deepswe %q: %v", args, err)
		}
	}
}

func mustRoot(t *testing.T) *cobra.Command {
	t.Helper()
	root, err := newRoot(new(bool), cli.World{
		In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" },
	})
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// commandLine is one in a code block or in a comment of a configuration.
var commandLine = regexp.MustCompile(`^(?: {4,}|#   )(?:\$ )?(deepswe +[a-z]+(?: .*)?)$`)

// documented returns the command lines of pages, configurations and help, with continued lines put together.
func documented(t *testing.T) (lines []string) {
	t.Helper()
	var texts []string
	for _, c := range mustRoot(t).Commands() {
		texts = append(texts, strings.ReplaceAll("  "+c.Example, "\n", "\n  "))
	}
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == ".git" && e.IsDir() {
			return fs.SkipDir
		}
		if err != nil || e.IsDir() || filepath.Ext(path) != ".md" && filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		texts = append(texts, string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	continued := regexp.MustCompile(`\\\n(?:# +|\s+)`)
	for _, text := range texts {
		for line := range strings.Lines(continued.ReplaceAllString(text, "")) {
			m := commandLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
			if m != nil && !strings.Contains(m[1], " [") { // that is a synopsis
				lines = append(lines, m[1])
			}
		}
	}
	return lines
}

// TestHouse holds the top level to what the design lists.
func TestHouse(t *testing.T) {
	allowed := []string{
		"main.go", "main_test.go", "agent", "tools", "env", "rl", "verify", "testdata", "go.mod", "go.sum", "LICENSE",
		"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs",
	}
	entries, err := fs.ReadDir(os.DirFS("."), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(allowed, e.Name()) && !ignored(t, e.Name()) {
			t.Errorf("%s is not one of the entries that the top level has", e.Name())
		}
	}
}

// TestLinks follows the links between the pages, to their headings, too.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "*.md").Output()
	if err != nil {
		t.Skip("this is not a clone")
	}
	for page := range strings.FieldsSeq(string(out)) {
		text, err := os.ReadFile(page)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if m[2] != "" && !slices.Contains(headings(t, target), m[2]) {
				t.Errorf("%s: %s has no heading #%s", page, target, m[2])
			}
		}
	}
}

// headings returns the addresses that forges give to the headings of a page.
func headings(t *testing.T, page string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		plain := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(plain, " ", "-"))
	}
	return names
}

// TestSecurityNamesItsTests holds SECURITY.md to the tests that it names: each exists, and each sentence of
// a promise names one.
func TestSecurityNamesItsTests(t *testing.T) {
	text, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, promised, _ := strings.Cut(string(text), "## What is promised")
	promised, _, _ = strings.Cut(promised, "\n## ")
	named := regexp.MustCompile(`\b[Tt]est[A-Z]\w*`)
	sentence := regexp.MustCompile(`\.(?:\s|$)`)
	for _, promise := range strings.Split(promised, "\n- ")[1:] {
		promise = regexp.MustCompile(`(?s)^\*\*.*?\.\*\*`).ReplaceAllString(promise, "") // its heading
		for _, claim := range sentence.Split(strings.TrimSpace(promise), -1) {
			if claim != "" && !named.MatchString(claim) {
				t.Errorf("no test holds this claim: %s", claim)
			}
		}
	}
	exists := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ([Tt]est\w+)\(t \*testing\.T`)
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(source, -1) {
			exists[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range named.FindAllString(string(text), -1) {
		if !exists[name] {
			t.Errorf("there is no test %s", name)
		}
	}
}

func ignored(t *testing.T, name string) bool {
	t.Helper()
	return exec.CommandContext(t.Context(), "git", "check-ignore", "-q", name).Run() == nil
}

// Every command of these pages is executed by a script, as it is there.
func TestPagesOfCommands(t *testing.T) {
	for _, page := range []string{"mine", "looking"} {
		text, err := os.ReadFile("docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		executed, err := os.ReadFile("testdata/script/" + page + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		commands := regexp.MustCompile(`(?m)^    (deepswe .*)$`).FindAllStringSubmatch(string(text), -1)
		for _, c := range commands {
			if !strings.Contains(string(executed), "exec "+c[1]) {
				t.Errorf("%s: nothing executes %s", page, c[1])
			}
		}
		if len(commands) < 6 {
			t.Errorf("%s has %d commands", page, len(commands))
		}
	}
}
