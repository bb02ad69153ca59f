package agentcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/testkit"
)

// scripted is a model that gives its replies one after another, and keeps the requests.
type scripted struct {
	replies []string
	// before, if set, is called before each reply, and stands for what happens outside the rollout.
	before func()
	// thinks, if set, is closed at the first request, which then gets no reply.
	thinks chan struct{}

	mu    sync.Mutex
	asked []agent.Request
}

func (m *scripted) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	if m.thinks != nil {
		close(m.thinks)
		<-ctx.Done()
		return agent.Reply{}, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.asked)
	m.asked = append(m.asked, r)
	if m.before != nil {
		m.before()
	}
	if n >= len(m.replies) {
		return agent.Reply{}, fmt.Errorf("%w: no reply is left", agent.ErrModelUnavailable)
	}
	return agent.Reply{
		Message: agent.Message{Role: agent.RoleAssistant, Content: m.replies[n]}, FinishReason: "stop",
		Usage: agent.Usage{Prompt: 100, Completion: 10},
	}, nil
}

const (
	sayHello = "<function=execute_bash>\n<parameter=cmd>sed -i 's/goodbye/hello/' hello.txt</parameter>\n</function>"
	submit   = "<function=finish>\n<parameter=command>submit</parameter>\n</function>"
)

func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

// world is a user's machine: a home directory, a directory for temporary files, and a model.
type world struct {
	deps     Deps
	out, err bytes.Buffer
	vars     map[string]string
	model    *scripted
}

func newWorld(t *testing.T, replies ...string) *world {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	t.Setenv("TMPDIR", t.TempDir())
	w := &world{vars: map[string]string{"HOME": t.TempDir()}, model: &scripted{replies: replies}}
	training := func(out io.Writer, dir string) error {
		_, err := fmt.Fprintf(out, "%s has steps\n", filepath.Base(dir))
		return err
	}
	noGlance := func(io.Writer, string) error { return nil }
	isTest := func(name string) bool { return strings.Contains(name, "test") }
	w.deps = Deps{Demo: os.DirFS("../../testdata/demo"), Training: training, Glance: noGlance, IsTest: isTest}
	w.deps.World = cli.World{
		In: strings.NewReader(""), Out: &w.out, Err: cli.NewScreen(&w.err), Getenv: environment(w.vars), Version: "test",
		OpenModel: func(context.Context, cli.ModelChoice) (cli.LiveModel, error) {
			return cli.LiveModel{Model: w.model, Name: "scripted", Context: 32768}, nil
		},
	}
	return w
}

// sandbox replaces the table behind --env with one entry.
func (w *world) sandbox(name string, images bool, open func(context.Context, *slog.Logger,
	cli.SandboxChoice) (env.Provider, error)) {
	w.deps.Sandboxes = []cli.SandboxKind{{Name: name, Images: images, Open: open}}
}

// run runs a command line, returns its exit code, and checks that it left no temporary file.
func (w *world) run(t *testing.T, args ...string) int {
	t.Helper()
	w.out.Reset()
	w.err.Reset()
	root := &cobra.Command{Use: "deepswe", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(New(w.deps)...)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	if err != nil {
		cli.Say(&w.err, err.Error())
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("%v left %v", args, left)
	}
	return cli.ExitCode(err)
}

// result returns the last line of --json.
func (w *world) result(t *testing.T) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(w.out.String()), "\n")
	var last map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last["type"] != "result" {
		t.Fatalf("the last line is no result (%v):\n%s", err, w.out.String())
	}
	return last
}

// script runs a shell script in dir.
func script(t *testing.T, dir, text string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", text)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=u", "GIT_AUTHOR_EMAIL=u@u", "GIT_COMMITTER_NAME=u",
		"GIT_COMMITTER_EMAIL=u@u", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", text, err, out)
	}
	return string(out)
}

func repository(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "greeter")
	testkit.WriteFile(t, filepath.Join(dir, "hello.txt"), "goodbye\n")
	script(t, dir, "git init -q -b main .; git add -A; git commit -qm start")
	return dir
}

// gitHub stands in for GitHub: it serves the REST API and, over smart HTTP, the repository.
func gitHub(t *testing.T, repo string) *httptest.Server {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	script(t, filepath.Dir(repo), "git clone -q --bare greeter greeter.git; touch greeter.git/git-daemon-export-ok")
	served := &cgi.Handler{Path: git, Args: []string{"http-backend"}, Root: "/o",
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(repo), "GIT_HTTP_EXPORT_ALL=1"}}
	mux := http.NewServeMux()
	mux.Handle("/o/greeter.git/", served)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	answer := func(v any) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(rw).Encode(v) }
	}
	user := map[string]any{"login": "ann", "type": "User"}
	mux.Handle("GET /api/repos/o/greeter", answer(map[string]any{"clone_url": server.URL + "/o/greeter.git",
		"default_branch": "main"}))
	mux.Handle("GET /api/repos/o/greeter/issues/7", answer(map[string]any{
		"number": 7, "title": "It says goodbye", "body": "It should say hello & <smile>.", "state": "open", "user": user,
		"comments": 1,
		"html_url": server.URL + "/o/greeter/issues/7",
	}))
	mux.Handle("GET /api/repos/o/greeter/issues/7/comments", answer([]any{map[string]any{
		"body": "In hello.txt, I think.", "user": user, "author_association": "MEMBER", "created_at": "2026-01-02T03:04:05Z",
	}}))
	return server
}

// The address of an issue is enough: its title, body and comments are read, and the repository is cloned.
func TestSolveFromAnIssuesAddress(t *testing.T) {
	w := newWorld(t, sayHello, submit)
	own := repository(t)
	server := gitHub(t, own)
	w.vars["DEEPSWE_GITHUB_API"] = server.URL + "/api"
	url := server.URL + "/o/greeter/issues/7"

	if code := w.run(t, "solve", "--env", "host", "--format", "xml", "--json", url); code != cli.ExitDone {
		t.Fatalf("exit code %d\n%s%s", code, &w.out, &w.err)
	}
	if got := fmt.Sprint(w.result(t)["files"]); got != "[hello.txt]" {
		t.Errorf("the patch is about %s", got)
	}
	prompt := fmt.Sprint(w.model.asked[0].Messages)
	for _, want := range []string{"It says goodbye", "It should say hello & <smile>.", "In hello.txt, I think."} {
		if !strings.Contains(prompt, want) {
			t.Errorf("the prompt does not hold %q", want)
		}
	}

	// With --repo, the work is done on the user's own clone, and the branch is made there.
	w.model.asked = nil
	script(t, own, "git config user.name u; git config user.email u@u")
	if code := w.run(t, "solve", "--env", "host", "--format", "xml", "--repo", own, "--branch", "fix-7",
		url); code != cli.ExitDone {
		t.Fatalf("exit code %d\n%s%s", code, &w.out, &w.err)
	}
	if got := script(t, own,
		"git show fix-7:hello.txt; git log -1 --format=%s fix-7; git status --porcelain"); got != "hello\nFix: It says goodbye\n" {
		t.Errorf("got %q", got)
	}

	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{url, "--apply"}, "require --repo DIR"},
		{[]string{server.URL + "/o/greeter/issues/8"}, "8"},
		{[]string{url, "--repo", own, "--branch", "fix-7"}, "exists already"},
	} {
		w.model.asked = nil
		if code := w.run(t, append([]string{"solve", "--env", "host"}, c.args...)...); code != cli.ExitUsage ||
			!strings.Contains(w.err.String(), c.says) {
			t.Errorf("%v: exit code %d, says %q; want %d and %q", c.args, code, &w.err, cli.ExitUsage, c.says)
		}
	}
}

// Whatever goes wrong, the last line of --json is a result with the exit code.
func TestSolveAlwaysTellsAResult(t *testing.T) {
	w := newWorld(t)
	own := repository(t)
	t.Chdir(own)
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"nothing to solve":   {nil, cli.ExitUsage},
		"an unknown sandbox": {[]string{"--env", "cellar", "x"}, cli.ExitUsage},
		"no repository":      {[]string{"--repo", "missing", "x"}, cli.ExitUsage},
		"no such recording":  {[]string{"--model", "replay:missing", "x"}, cli.ExitUsage},
		"a wrong limit":      {[]string{"--max-steps", "0", "x"}, cli.ExitUsage},
		"a bad branch":       {[]string{"--branch", "a..b", "x"}, cli.ExitUsage},
		"a pack that is not": {[]string{"--prompt-pack", "hello.txt", "x"}, cli.ExitUsage},
		"a failing endpoint": {[]string{"--env", "host", "x"}, cli.ExitModel},
	} {
		t.Run(name, func(t *testing.T) {
			code := w.run(t, append([]string{"solve", "--json"}, c.args...)...)
			got := w.result(t)
			if code != c.code || got["exit_code"] != float64(c.code) || got["error"] == nil || got["patch"] != nil {
				t.Errorf("exit code %d, want %d; result %v", code, c.code, got)
			}
		})
	}
}

// A patch of an agent that did not finish is kept, but not applied to the user's files.
func TestApplyIsForFinishedWork(t *testing.T) {
	w := newWorld(t, sayHello, submit)
	own := repository(t)
	if code := w.run(t, "solve", "--env", "host", "--format", "xml", "--repo", own, "--apply", "--max-steps", "1",
		"say hello"); code != cli.ExitLimit {
		t.Fatalf("exit code %d\n%s", code, &w.err)
	}
	if got := script(t, own, "cat hello.txt"); got != "goodbye\n" || !strings.Contains(w.err.String(), "not applied") {
		t.Errorf("the file says %q, and the summary\n%s", got, &w.err)
	}
	w.model.asked = nil
	if code := w.run(t, "solve", "--env", "host", "--format", "xml", "--repo", own, "--apply",
		"say hello"); code != cli.ExitDone {
		t.Fatalf("exit code %d\n%s", code, &w.err)
	}
	if got := script(t, own, "cat hello.txt"); got != "hello\n" {
		t.Errorf("the file says %q", got)
	}
	// If somebody has changed the file meanwhile, nothing is applied and the patch is kept.
	w.model.asked, w.model.replies = nil,
		[]string{"<function=execute_bash>\n<parameter=cmd>echo bye > hello.txt</parameter>\n</function>", submit}
	w.model.before = func() { testkit.WriteFile(t, filepath.Join(own, "hello.txt"), "mine\n") }
	if code := w.run(t, "solve", "--env", "host", "--format", "xml", "--repo", own, "--apply",
		"say bye"); code != cli.ExitUsage {
		t.Fatalf("exit code %d\n%s", code, &w.err)
	}
	if got := script(t, own, "cat hello.txt"); got != "mine\n" || !strings.Contains(w.err.String(), "patch saved") {
		t.Errorf("the file says %q, and the summary\n%s", got, &w.err)
	}
}

// The configuration does not affect the demo, which is the same everywhere.
func TestDemoIgnoresTheConfiguration(t *testing.T) {
	w := newWorld(t)
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs go")
	}
	testkit.WriteFile(t, filepath.Join(w.vars["HOME"], ".config", "deepswe", "config.yaml"),
		"env: docker\nimage: no/such:image\nformat: tools\nmodel: other\n")
	if code := w.run(t, "solve", "--demo", "--env", "host"); code != cli.ExitDone {
		t.Fatalf("exit code %d\n%s", code, &w.err)
	}
	for _, want := range []string{"answers are recorded", "DEEPSWE_BASE_URL", "passes", "solved (submitted)"} {
		if !strings.Contains(w.err.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &w.err)
		}
	}
	if !strings.HasPrefix(w.out.String(), "diff --git ") || strings.Contains(w.out.String()+w.err.String(), "\x1b") {
		t.Errorf("it prints %s%s", &w.out, &w.err)
	}
	// With a flag that names an endpoint, the demo uses a live model.
	w.model.replies = []string{submit}
	if code := w.run(t, "solve", "--demo", "--env", "host", "--format", "xml", "--base-url",
		"http://localhost"); code != cli.ExitUnsolved || strings.Contains(w.err.String(), "recorded") {
		t.Errorf("exit code %d\n%s", code, &w.err)
	}
}
