package forge_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/env/forge"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t",
		"GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// gitHost serves a real repository with three commits over HTTP, with git's own backend, at /o/r.git.
type gitHost struct {
	backend http.Handler
	token   string // required if not empty
	to      string // a redirect's target, if not empty
	root    string
	served  string // the bare repository

	mu   sync.Mutex
	seen []string // Authorization headers
}

func newGitHost(t *testing.T) *gitHost {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Skip("git is not installed")
	}
	program := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(program); err != nil {
		t.Skip("git is here without git-http-backend")
	}
	root := t.TempDir()
	work := filepath.Join(root, "work")
	git(t, root, "init", "-q", "-b", "trunk", work)
	for _, text := range []string{"one\r\n", "two\r\n", "three\r\n"} {
		if err := os.WriteFile(filepath.Join(work, "file.txt"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		git(t, work, "add", ".")
		git(t, work, "-c", "core.autocrlf=false", "commit", "-qm", text)
	}
	served := filepath.Join(root, "served", "o", "r.git")
	git(t, root, "clone", "-q", "--bare", work, served)
	git(t, served, "config", "http.receivepack", "true")
	return &gitHost{root: root, served: served, backend: &cgi.Handler{
		Path: program, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Join(root, "served"), "GIT_HTTP_EXPORT_ALL=1"},
	}}
}

func (h *gitHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api/v3/meta" {
		fmt.Fprint(w, `{"installed_version":"3.15.0"}`)
		return
	}
	h.mu.Lock()
	h.seen = append(h.seen, r.Header.Get("Authorization"))
	h.mu.Unlock()
	if h.to != "" {
		http.Redirect(w, r, h.to+r.URL.RequestURI(), http.StatusFound)
		return
	}
	if _, password, _ := r.BasicAuth(); h.token != "" && password != h.token {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	h.backend.ServeHTTP(w, r)
}

func (h *gitHost) authorizations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen
}

func serve(t *testing.T, h http.Handler, o forge.Options) (*forge.Client, forge.Task) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := forge.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c, forge.Task{Project: "o/r", URL: srv.URL + "/o/r/issues/1", CloneURL: srv.URL + "/o/r.git"}
}

func TestClone(t *testing.T) {
	c, issue := serve(t, newGitHost(t), forge.Options{})
	dir := filepath.Join(t.TempDir(), "r")
	if err := c.Clone(t.Context(), issue, dir); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "file.txt"))
	if err != nil || string(data) != "three\r\n" {
		t.Errorf("got %q, %v", data, err)
	}
	if n := git(t, dir, "rev-list", "--count", "HEAD"); n != "3" {
		t.Errorf("%s commits", n)
	}
	if b := git(t, dir, "branch", "--show-current"); b != "trunk" {
		t.Errorf("branch %s", b)
	}
}

func TestCloneWithAToken(t *testing.T) {
	h := newGitHost(t)
	h.token = "tok-secret-1"
	c, issue := serve(t, h, forge.Options{Getenv: token(h.token)})
	dir := filepath.Join(t.TempDir(), "r")
	if err := c.Clone(t.Context(), issue, dir); err != nil {
		t.Fatal(err)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + h.token))
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), h.token) || strings.Contains(string(data), encoded) {
			t.Errorf("the token is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The token is not in the arguments or the environment of git, which other processes may see.
func TestTheTokenIsInNoArgument(t *testing.T) {
	record := filepath.Join(t.TempDir(), "arguments")
	fake := filepath.Join(t.TempDir(), "git")
	script := "#!/bin/sh\nprintf '%s\\n' \"$@\" > " + record + "\nenv > " + record + ".env\n"
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GITHUB_TOKEN", "tok-secret-1")
	t.Setenv("GIT_DIR", "/elsewhere")
	t.Setenv("PATH", filepath.Dir(fake)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	c, err := forge.New(forge.Options{Getenv: token("tok-secret-1")})
	if err != nil {
		t.Fatal(err)
	}
	issue := forge.Task{Project: "o/r", URL: "https://github.com/o/r/issues/1",
		CloneURL: "https://github.com/o/r.git"}
	if err := c.Clone(t.Context(), issue, filepath.Join(t.TempDir(), "r")); err != nil {
		t.Fatal(err)
	}
	arguments, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	environment, err := os.ReadFile(record + ".env")
	if err != nil {
		t.Fatal(err)
	}
	env := string(environment)
	if !strings.Contains(string(arguments), "--depth\n50\n") {
		t.Errorf("git ran with\n%s\nwant a shallow clone", arguments)
	}
	if strings.Contains(string(arguments), "tok-secret-1") || strings.Contains(env, "tok-secret-1") ||
		strings.Contains(env, "/elsewhere") {
		t.Errorf("git ran with\n%s\nin\n%s", arguments, env)
	}
	for _, want := range []string{"=http.https://github.com/.extraHeader\n", "GIT_TERMINAL_PROMPT=0\n",
		"=http.followRedirects\n", "GIT_ALLOW_PROTOCOL=https\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("%q is missing in\n%s", want, env)
		}
	}

	issue.CloneURL = "https://elsewhere.example.com/o/r.git" // an address from an API is not trusted
	if err := c.Clone(t.Context(), issue, filepath.Join(t.TempDir(), "r")); err != nil {
		t.Fatal(err)
	}
	if environment, err = os.ReadFile(record + ".env"); err != nil ||
		strings.Contains(string(environment), "extraHeader") {
		t.Errorf("the token is sent elsewhere: %v", err)
	}
}

func TestCloneDoesNotCarryTheTokenAlong(t *testing.T) {
	elsewhere := newGitHost(t)
	other := httptest.NewServer(elsewhere)
	defer other.Close()
	h := newGitHost(t)
	h.to = other.URL
	c, issue := serve(t, h, forge.Options{Getenv: token("tok-secret-1")})
	if err := c.Clone(t.Context(), issue, filepath.Join(t.TempDir(), "r")); err == nil {
		t.Error("the redirect was followed")
	}
	for _, header := range elsewhere.authorizations() {
		if header != "" {
			t.Errorf("the token travelled: %s", header)
		}
	}
}

func TestCloneFailures(t *testing.T) {
	h := newGitHost(t)
	h.token = "tok"
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		url, dir, token string
		want            string
	}{
		"private":      {"", "", "", "set GITHUB_TOKEN to a token"},
		"wrong token":  {"", "", "other", "GITHUB_TOKEN may not read"},
		"a command":    {"ext::sh -c touch% /tmp/owned", "", "", "invalid clone address"},
		"a local path": {"/etc", "", "", "invalid clone address"},
		"a file":       {"file:///etc", "", "", "cloning over file is not allowed"},
		"ssh":          {"ssh://host/o/r", "", "", "cloning over ssh is not allowed"},
		"an option":    {"--upload-pack=x", "", "", "invalid clone address"},
		"plain http":   {"http://192.0.2.1/o/r.git", "", "", "cloning over http is not allowed"},
		"a directory":  {"", full, "", "is not empty"},
		"not there":    {"", "", "tok", "not found"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, issue := serve(t, h, forge.Options{Getenv: token(tt.token)})
			if tt.url != "" {
				issue.CloneURL = tt.url
			}
			if name == "not there" {
				issue.CloneURL = strings.Replace(issue.CloneURL, "r.git", "none.git", 1)
			}
			dir := tt.dir
			if dir == "" {
				dir = filepath.Join(t.TempDir(), "r")
			}
			err := c.Clone(t.Context(), issue, dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "clone o/r: ") {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(dir); tt.dir == "" && !os.IsNotExist(err) {
				t.Errorf("something is left: %v", err)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(full, "mine")); err != nil {
		t.Error(err)
	}
}

// An API that stands in for the real one may name a repository by a file URL.
func TestCloneOfAFile(t *testing.T) {
	root := t.TempDir()
	git(t, root, "init", "-q", "-b", "main", "src")
	git(t, filepath.Join(root, "src"), "commit", "-q", "--allow-empty", "-m", "x")
	c, err := forge.New(forge.Options{API: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() // it exists, and is empty
	if err := c.Clone(t.Context(), forge.Task{
		URL: "https://github.com/o/r/issues/1", CloneURL: "file://" + filepath.Join(root, "src"),
	}, dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
		t.Error(err)
	}
}

// A clone runs neither a template's hooks nor a user's.
func TestCloneRunsNothing(t *testing.T) {
	h := newGitHost(t)
	c, issue := serve(t, h, forge.Options{})
	home := t.TempDir()
	ran := filepath.Join(home, "ran")
	hook := filepath.Join(home, "template", "hooks", "post-checkout")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hook, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	config := "[init]\n\ttemplateDir = " + filepath.Join(home, "template") + "\n[core]\n\thooksPath = " +
		filepath.Dir(hook) + "\n\tautocrlf = input\n"
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	if err := c.Clone(t.Context(), issue, filepath.Join(t.TempDir(), "r")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a hook ran")
	}
}

func TestCloneEndsWithTheContext(t *testing.T) {
	asked := make(chan struct{})
	var once sync.Once
	ctx, cancel := context.WithCancel(t.Context())
	c, issue := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v3/meta" {
			fmt.Fprint(w, `{"installed_version":"3.15.0"}`)
			return
		}
		once.Do(func() { close(asked) })
		<-r.Context().Done()
	}), forge.Options{})
	go func() {
		<-asked
		cancel()
	}()
	dir := filepath.Join(t.TempDir(), "r")
	done := make(chan error, 1)
	go func() { done <- c.Clone(ctx, issue, dir) }()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("git is still running")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("something is left: %v", err)
	}
}
