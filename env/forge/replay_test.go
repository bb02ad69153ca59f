package forge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/env/forge"
	"deepswe/env/testkit"
)

// replayed is a host that answers as a forge would that tests cannot run, and serves a real repository through git.
type replayed struct {
	*httptest.Server
	git *gitHost
	// answers are bodies by method and path. A body may begin with its status.
	answers map[string]string
	// first are answers that are given once each, before those in answers.
	first map[string][]string

	mu   sync.Mutex
	sent map[string]string // bodies, by method and path
}

func replay(t *testing.T, answers map[string]string) *replayed {
	t.Helper()
	r := &replayed{git: newGitHost(t), answers: answers, sent: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (h *replayed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, ".git/") {
		h.git.ServeHTTP(w, r)
		return
	}
	key := r.Method + " " + r.URL.EscapedPath()
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	h.sent[key] = string(body)
	h.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer tok-1" && !strings.HasSuffix(key, "/version") && !strings.HasSuffix(key, "/meta") {
		http.Error(w, `{"message":"who are you?"}`, http.StatusUnauthorized)
		return
	}
	answer, ok := h.answers[key]
	h.mu.Lock()
	if left := h.first[key]; len(left) > 0 {
		answer, ok, h.first[key] = left[0], true, left[1:]
	}
	h.mu.Unlock()
	if !ok {
		http.Error(w, `{"message":"Not Found"}`, http.StatusNotFound)
		return
	}
	status := http.StatusOK
	if _, err := fmt.Sscanf(answer, "%d {", &status); err == nil {
		answer = answer[4:]
	}
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "60")
	}
	if page, rest, ok := strings.Cut(answer, "\nNEXT\n"); ok && r.URL.Query().Get("page") == "" {
		answer = page
		w.Header().Set("Link", "<"+h.URL+r.URL.Path+`?page=2>; rel="next"`)
	} else if ok {
		answer = rest
	}
	w.WriteHeader(status)
	fmt.Fprint(w, strings.ReplaceAll(answer, "HOST", h.URL))
}

// body returns the JSON object that was sent.
func (h *replayed) body(t *testing.T, key string) map[string]any {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	var got map[string]any
	if err := json.Unmarshal([]byte(h.sent[key]), &got); err != nil {
		t.Fatalf("%s was sent %q: %v; there were %v", key, h.sent[key], err, slices.Collect(maps.Keys(h.sent)))
	}
	return got
}

func (h *replayed) client(t *testing.T, name string) *forge.Client {
	t.Helper()
	c, err := forge.New(forge.Options{Getenv: func(n string) string { return map[string]string{name: "tok-1"}[n] },
		Sleep: func(context.Context, time.Duration) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// three is a patch of the repository that gitHost serves.
const three = "diff --git a/file.txt b/file.txt\n--- a/file.txt\n+++ b/file.txt\n@@ -1 +1 @@\n-three\r\n+four\r\n"

func TestGitHubDraft(t *testing.T) {
	repository := `{"full_name":"o/r","clone_url":"HOST/o/r.git","default_branch":"trunk","html_url":"HOST/o/r",` +
		`"permissions":{"push":true}}`
	pull := `{"number":9,"html_url":"HOST/o/r/pull/9","title":"Say four","state":"open","draft":true,"user":{"login":"ann"},` +
		`"base":{"ref":"trunk"},"head":{"ref":"deepswe/issue-7","sha":"SHA","repo":` + repository + `}}`
	h := replay(t, map[string]string{
		"GET /api/v3/meta":               `{"installed_version":"3.15.0"}`,
		"GET /api/v3/repos/o/r":          repository,
		"GET /api/v3/repos/o/r/issues/7": `{"number":7,"title":"It says three","state":"open","html_url":"HOST/o/r/issues/7"}`,
		"GET /api/v3/repos/o/r/pulls":    `[]`,
		"POST /api/v3/repos/o/r/pulls":   pull,
		"GET /api/v3/repos/o/r/pulls/9":  pull,
		"POST /api/graphql": `{"data":{"repository":{"pullRequest":{"reviewThreads":{"nodes":[
			{"isResolved":true,"path":"a","line":1,"comments":{"nodes":[{"databaseId":1,"body":"old"}]}},
			{"isResolved":false,"path":"file.txt","line":1,"comments":{"nodes":[{"databaseId":5,"body":"Say five.",
			"authorAssociation":"MEMBER","author":{"login":"ben"},"createdAt":"2026-01-02T03:04:05Z"}]}}]}}}}}`,
		"GET /api/v3/repos/o/r/commits/SHA/status": `{"state":"failure","statuses":[{"state":"failure","context":"ci/x",
			"description":"it broke"},{"state":"success","context":"ci/y"}]}`,
		"GET /api/v3/repos/o/r/commits/SHA/check-runs": `{"check_runs":[{"id":3,"name":"test","conclusion":"failure",
			"output":{"title":"1 failed"},"app":{"slug":"github-actions"}},{"id":4,"name":"lint","conclusion":"success"}]}`,
		"GET /api/v3/repos/o/r/actions/jobs/3/logs":         "--- FAIL: TestThree",
		"POST /api/v3/repos/o/r/pulls/9/comments/5/replies": `{"id":6}`,
	})
	p := proposal(t, h.URL+"/o/r/issues/7")
	p.Answers = map[string]string{"5": "The token is tok-1."}
	if _, _, err := publish(t, h.client(t, "GITHUB_TOKEN"), p); err == nil || !strings.Contains(err.Error(), "contains the token") ||
		strings.Contains(err.Error(), "tok-1") {
		t.Errorf("a change with the token in it: %v", err)
	}
	p.Patch, p.Answers = []byte(three), nil
	done, d, err := publish(t, h.client(t, "GITHUB_TOKEN"), p)
	if err != nil || done.Number != 9 || !done.Draft {
		t.Fatalf("got %+v, %v", done, err)
	}
	sent := h.body(t, "POST /api/v3/repos/o/r/pulls")
	if sent["draft"] != true || sent["head"] != "deepswe/issue-7" || sent["base"] != "trunk" ||
		!strings.Contains(sent["body"].(string), "\n\nFixes #7\n") {
		t.Errorf("sent %v", sent)
	}
	if got := git(t, h.git.served, "log", "-1", "--format=%H", "deepswe/issue-7"); got != d.Commit {
		t.Errorf("the branch is at %s, not %s", got, d.Commit)
	}

	a, err := forge.Parse(h.URL + "/o/r/pull/9")
	if err != nil {
		t.Fatal(err)
	}
	review, err := h.client(t, "GITHUB_TOKEN").Review(t.Context(), a)
	if err != nil || len(review.Threads) != 1 || len(review.Checks) != 2 {
		t.Fatalf("got %+v, %v", review, err)
	}
	for _, want := range []string{"[thread 5] file.txt, line 1:\n@ben (member) on 2026-01-02:\nSay five.",
		"The check ci/x failed: it broke", "The check test failed: 1 failed\n--- FAIL: TestThree"} {
		if !strings.Contains(review.Statement(), want) {
			t.Errorf("%q is missing in\n%s", want, review.Statement())
		}
	}
	p.To, p.Patch, p.Answers = a, []byte(strings.NewReplacer("-three", "-four", "+four", "+five").Replace(three)), nil
	if done, _, err = publish(t, h.client(t, "GITHUB_TOKEN"), p); err != nil || done.Answered != 1 || !done.Updated {
		t.Errorf("got %+v, %v", done, err)
	}
	if reply := h.body(t, "POST /api/v3/repos/o/r/pulls/9/comments/5/replies")["body"]; !strings.HasPrefix(fmt.Sprint(reply),
		"Changed in "+done.Commit[:10]+".") {
		t.Errorf("the reply is %q", reply)
	}
}

// gitLab replays GitLab with a project, an issue and what a test adds.
func gitLab(t *testing.T, level int, more map[string]string) *replayed {
	t.Helper()
	answers := map[string]string{
		"GET /api/v4/version": `401 {"message":"401 Unauthorized"}`,
		"GET /api/v4/projects/o%2Fr": fmt.Sprintf(`{"id":4,"path_with_namespace":"o/r","http_url_to_repo":"HOST/o/r.git",
			"default_branch":"trunk","web_url":"HOST/o/r","permissions":{"project_access":{"access_level":%d},"group_access":null}}`, level),
		"GET /api/v4/projects/o%2Fr/issues/7": `{"iid":7,"title":"It says three","description":"Say four.","state":"opened",
			"web_url":"HOST/o/r/-/issues/7","author":{"username":"ann"},"user_notes_count":2}`,
		"GET /api/v4/projects/o%2Fr/issues/7/notes": `[{"body":"changed the label","system":true,"author":{"username":"ann"}},
			{"body":"Yes.","author":{"username":"ben"}}]`,
		"GET /api/v4/projects/o%2Fr/merge_requests": `[]`,
		"POST /api/v4/projects/4/merge_requests": `{"iid":3,"web_url":"HOST/o/r/-/merge_requests/3","title":"Draft: x",
			"state":"opened","draft":true,"source_project_id":4}`,
	}
	maps.Copy(answers, more)
	return replay(t, answers)
}

func TestGitLabDraft(t *testing.T) {
	h := gitLab(t, 30, nil)
	page := h.URL + "/o/r/-/issues/7"
	c := h.client(t, "GITLAB_TOKEN")
	issue, err := readIssue(t.Context(), c, page)
	if err != nil || issue.Kind != forge.GitLab || issue.Body != "Say four." || issue.State != "open" || len(issue.Comments) != 1 {
		t.Errorf("got %+v, %v", issue, err)
	}
	p := proposal(t, page)
	p.Patch = []byte(three)
	done, _, err := publish(t, c, p)
	if err != nil || done.URL != h.URL+"/o/r/-/merge_requests/3" || !done.Draft {
		t.Fatalf("got %+v, %v", done, err)
	}
	sent := h.body(t, "POST /api/v4/projects/4/merge_requests")
	if !strings.HasPrefix(fmt.Sprint(sent["title"]), "Draft: ") || sent["source_branch"] != "deepswe/issue-7" ||
		sent["target_project_id"] != 4.0 || !strings.Contains(sent["description"].(string), "Fixes #7") {
		t.Errorf("sent %v", sent)
	}
}

// If a guest may not push, the branch goes to a fork, and the merge request is opened from there.
func TestGitLabFork(t *testing.T) {
	h := gitLab(t, 10, map[string]string{
		"GET /api/v4/projects/o%2Fr/forks":       `[]`,
		"POST /api/v4/projects/o%2Fr/fork":       `201 {"id":5,"path_with_namespace":"bot/r","http_url_to_repo":"HOST/bot/r.git"}`,
		"POST /api/v4/projects/5/merge_requests": `201 {"iid":3,"web_url":"HOST/o/r/-/merge_requests/3","title":"Draft: x"}`,
	})
	git(t, h.git.root, "clone", "-q", "--bare", h.git.served, "served/bot/r.git")
	git(t, h.git.root, "-C", "served/bot/r.git", "config", "http.receivepack", "true")
	p := proposal(t, h.URL+"/o/r/-/issues/7")
	p.Patch = []byte(three)
	done, d, err := publish(t, h.client(t, "GITLAB_TOKEN"), p)
	if err != nil || done.Number != 3 || d.From != "bot/r" {
		t.Fatalf("got %+v, %v", done, err)
	}
	if sent := h.body(t, "POST /api/v4/projects/5/merge_requests"); sent["target_project_id"] != 4.0 {
		t.Errorf("sent %v", sent)
	}
}

// A push with options opens the merge request, whose text is then set by a request.
func TestGitLabPushOptions(t *testing.T) {
	h := gitLab(t, 30, map[string]string{
		"PUT /api/v4/projects/o%2Fr/merge_requests/3": `{}`,
		"GET /api/v4/projects/o%2Fr/merge_requests/3": `{"iid":3,"web_url":"HOST/o/r/-/merge_requests/3","title":"Draft: x",
			"state":"opened","draft":true,"sha":"SHA","source_branch":"deepswe/issue-7","source_project_id":4}`,
		"GET /api/v4/projects/4": `{"id":4,"path_with_namespace":"o/r","http_url_to_repo":"HOST/o/r.git"}`,
	})
	git(t, h.git.served, "config", "receive.advertisePushOptions", "true")
	hook := filepath.Join(h.git.served, "hooks", "post-receive")
	testkit.WriteFile(t, hook, "#!/bin/sh\nenv | grep GIT_PUSH_OPTION_ >options\n"+
		"echo; echo 'View merge request for deepswe/issue-7:'; echo '  "+h.URL+"/o/r/-/merge_requests/3'; echo\n")
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
	p := proposal(t, h.URL+"/o/r/-/issues/7")
	p.Patch, p.Via = []byte(three), forge.AGit
	done, _, err := publish(t, h.client(t, "GITLAB_TOKEN"), p)
	if err != nil || done.Number != 3 || !done.Draft {
		t.Fatalf("got %+v, %v", done, err)
	}
	options, err := os.ReadFile(filepath.Join(h.git.served, "options"))
	for _, want := range []string{"=merge_request.create\n", "=merge_request.target=trunk\n",
		"=merge_request.target_project=o/r\n", "=merge_request.title=Draft: Say hello"} {
		if err != nil || !strings.Contains(string(options), want) {
			t.Errorf("%q is missing in %s, %v", want, options, err)
		}
	}
	text := h.body(t, "PUT /api/v4/projects/o%2Fr/merge_requests/3")["description"]
	if !strings.Contains(fmt.Sprint(text), "Fixes #7") {
		t.Errorf("its text is %q", text)
	}
}

// The open discussions and failed jobs of a merge request become a task. Its branch gets a commit, and each discussion
// a reply.
func TestGitLabReview(t *testing.T) {
	h := gitLab(t, 30, map[string]string{
		"GET /api/v4/projects/o%2Fr/merge_requests/3": `{"iid":3,"web_url":"HOST/o/r/-/merge_requests/3","title":"Say four",
			"state":"opened","sha":"SHA","source_branch":"trunk","target_branch":"trunk","source_project_id":4}`,
		"GET /api/v4/projects/4": `{"id":4,"path_with_namespace":"o/r","http_url_to_repo":"HOST/o/r.git"}`,
		"GET /api/v4/projects/o%2Fr/merge_requests/3/discussions": `[
			{"id":"d0","notes":[{"id":1,"body":"added 1 commit","system":true}]},
			{"id":"d1","notes":[{"id":2,"body":"Old.","resolvable":true,"resolved":true}]},
			{"id":"d2","notes":[{"id":3,"body":"Nice.","resolvable":false}]}]` + "\nNEXT\n" + `[
			{"id":"d3","notes":[{"id":4,"body":"Say five.","resolvable":true,"author":{"username":"ben"},
			"position":{"new_path":"file.txt","new_line":1}},{"id":5,"body":"Please.","resolvable":true,"author":{"username":"ann"}}]}]`,
		"GET /api/v4/projects/o%2Fr/merge_requests/3/pipelines":             `[{"id":9,"status":"failed","project_id":4},{"id":8,"status":"success"}]`,
		"GET /api/v4/projects/4/pipelines/9/jobs":                           `[{"id":1,"name":"test","failure_reason":"script_failure"},{"id":2,"name":"lint","allow_failure":true}]`,
		"GET /api/v4/projects/4/jobs/1/trace":                               "\x1b[31m--- FAIL: TestThree",
		"POST /api/v4/projects/o%2Fr/merge_requests/3/discussions/d3/notes": `201 {"id":6}`,
	})
	a, err := forge.Parse(h.URL + "/o/r/-/merge_requests/3")
	if err != nil {
		t.Fatal(err)
	}
	c := h.client(t, "GITLAB_TOKEN")
	review, err := c.Review(t.Context(), a)
	if err != nil || len(review.Threads) != 1 || len(review.Checks) != 1 {
		t.Fatalf("got %+v, %v", review, err)
	}
	for _, want := range []string{"[thread 4] file.txt, line 1:\n@ben:\nSay five.\n@ann:\nPlease.",
		"The check test failed: script_failure\n[31m--- FAIL: TestThree"} {
		if !strings.Contains(review.Statement(), want) {
			t.Errorf("%q is missing in\n%s", want, review.Statement())
		}
	}
	p := proposal(t, a.String())
	p.Patch, p.Answers = []byte(strings.Replace(three, "+four", "+five", 1)), map[string]string{"4": "It says five."}
	if done, _, err := publish(t, c, p); err != nil || done.Answered != 1 || !done.Updated {
		t.Errorf("got %+v, %v", done, err)
	}
	reply := h.body(t, "POST /api/v4/projects/o%2Fr/merge_requests/3/discussions/d3/notes")["body"]
	if !strings.HasPrefix(fmt.Sprint(reply), "It says five.") {
		t.Errorf("the reply is %q", reply)
	}
}

// When a forge refuses a request, the error says what to do.
func TestRefusedWritesAreExplained(t *testing.T) {
	for name, c := range map[string]struct{ answer, says string }{
		"no permission":  {`403 {"message":"Resource not accessible by integration"}`, "lacks a permission: it needs contents"},
		"Actions":        {`403 {"message":"GitHub Actions is not permitted to create or approve pull requests."}`, "allow it in the repository's settings"},
		"no drafts":      {`422 {"message":"Validation Failed","errors":[{"message":"Draft pull requests are not supported in this repository."}]}`, "--no-draft"},
		"a bad token":    {`401 {"message":"Bad credentials"}`, "GITHUB_TOKEN is not valid there"},
		"single sign-on": {`403 {"message":"Resource protected by organization SAML enforcement."}`, "single sign-on"},
		"not to write":   {`404 {"message":"Not Found"}`, "GITHUB_TOKEN may not do that there"},
		"archived":       {`423 {"message":"Repository is archived"}`, "nothing can be changed there"},
	} {
		t.Run(name, func(t *testing.T) {
			h := replay(t, map[string]string{
				"GET /api/v3/meta": `{"installed_version":"3.15.0"}`,
				"GET /api/v3/repos/o/r": `{"full_name":"o/r","clone_url":"HOST/o/r.git","default_branch":"trunk",` +
					`"permissions":{"push":true}}`,
				"GET /api/v3/repos/o/r/issues/7": `{"number":7,"title":"It says three","state":"open"}`,
				"GET /api/v3/repos/o/r/pulls":    `[]`,
				"POST /api/v3/repos/o/r/pulls":   c.answer,
			})
			p := proposal(t, h.URL+"/o/r/issues/7")
			p.Patch = []byte(three)
			if _, _, err := publish(t, h.client(t, "GITHUB_TOKEN"), p); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A push that fails on the server's side is repeated.
func TestAFailingServerIsPushedToAgain(t *testing.T) {
	h := gitLab(t, 30, nil)
	hook := testkit.WriteFile(t, filepath.Join(h.git.served, "hooks", "pre-receive"),
		"#!/bin/sh\n[ -e again ] && exit\ntouch again\necho 'Internal Server Error'\nexit 1\n")
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
	p := proposal(t, h.URL+"/o/r/-/issues/7")
	p.Patch = []byte(three)
	if done, _, err := publish(t, h.client(t, "GITLAB_TOKEN"), p); err != nil || done.Number != 3 {
		t.Errorf("got %+v, %v", done, err)
	}
}

// When a forge refuses a push, the error says what to do, too.
func TestRefusedPushesAreExplained(t *testing.T) {
	for name, c := range map[string]struct{ said, says string }{
		"CI": {"refusing to allow a Personal Access Token to create or update workflow `.github/workflows/x.yml` without `workflow` scope",
			"needs the permission workflow"},
		"signatures": {"Commits must have verified signatures.", "deepswe branch makes one"},
		"protected":  {"GH006: Protected branch update failed", "--via fork"},
		"a rule":     {"no such thing here", "--branch NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			h := gitLab(t, 30, nil)
			hook := testkit.WriteFile(t, filepath.Join(h.git.served, "hooks", "pre-receive"), "#!/bin/sh\necho '"+c.said+"'\nexit 1\n")
			if err := os.Chmod(hook, 0o755); err != nil {
				t.Fatal(err)
			}
			p := proposal(t, h.URL+"/o/r/-/issues/7")
			p.Patch = []byte(three)
			if _, _, err := publish(t, h.client(t, "GITLAB_TOKEN"), p); err == nil || !strings.Contains(err.Error(), c.says) ||
				strings.Contains(err.Error(), "moved meanwhile") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A push to a new fork waits until the fork can be pushed to.
func TestANewForkIsWaitedFor(t *testing.T) {
	h := replay(t, map[string]string{
		"GET /api/v3/meta":               `{"installed_version":"3.15.0"}`,
		"GET /api/v3/user":               `{"login":"bot"}`,
		"GET /api/v3/repos/o/r":          `{"full_name":"o/r","clone_url":"HOST/o/r.git","default_branch":"trunk"}`,
		"GET /api/v3/repos/o/r/issues/7": `{"number":7,"title":"It says three","state":"open"}`,
		"POST /api/v3/repos/o/r/forks":   `202 {"full_name":"bot/r-1","clone_url":"HOST/bot/r-1.git","default_branch":"trunk"}`,
		"GET /api/v3/repos/o/r/pulls":    `[]`,
		"POST /api/v3/repos/o/r/pulls":   `201 {"number":9,"html_url":"HOST/o/r/pull/9","draft":true}`,
	})
	waits := 0
	c, err := forge.New(forge.Options{Getenv: token("tok-1"), Sleep: func(context.Context, time.Duration) error {
		if waits++; waits == 3 {
			git(t, h.git.root, "clone", "-q", "--bare", h.git.served, "served/bot/r-1.git")
			git(t, h.git.root, "-C", "served/bot/r-1.git", "config", "http.receivepack", "true")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	p := proposal(t, h.URL+"/o/r/issues/7")
	p.Patch = []byte(three)
	if done, _, err := publish(t, c, p); err != nil || done.Number != 9 || waits != 3 {
		t.Errorf("got %+v, %v after %d waits", done, err, waits)
	}
	if sent := h.body(t, "POST /api/v3/repos/o/r/pulls"); sent["head"] != "bot:deepswe/issue-7" {
		t.Errorf("sent %v", sent)
	}
}

// A request that may have succeeded is repeated only if its result is not found. One that was limited is repeated.
func TestWritesThatFailAreRepeatedOnce(t *testing.T) {
	repository := `{"full_name":"o/r","clone_url":"HOST/o/r.git","default_branch":"trunk","permissions":{"push":true}}`
	pull := `{"number":9,"html_url":"HOST/o/r/pull/9","title":"x","draft":true,"head":{"ref":"deepswe/issue-7","repo":` +
		repository + `}}`
	for name, c := range map[string]struct {
		posts, lists []string
		says         string
	}{
		"not made":      {[]string{`500 {}`, `502 {}`, `201 ` + pull}, nil, ""},
		"made":          {[]string{`500 {}`}, []string{`[]`, `[` + pull + `]`}, ""},
		"a limit":       {[]string{`429 {}`, `201 ` + pull}, nil, ""},
		"never":         {[]string{`500 {}`, `500 {}`, `500 {}`, `500 {}`, `500 {}`}, nil, "500 Internal Server Error"},
		"not once more": {[]string{`400 {}`}, nil, "400 Bad Request"},
	} {
		t.Run(name, func(t *testing.T) {
			h := replay(t, map[string]string{
				"GET /api/v3/meta":               `{"installed_version":"3.15.0"}`,
				"GET /api/v3/repos/o/r":          repository,
				"GET /api/v3/repos/o/r/issues/7": `{"number":7,"title":"It says three","state":"open"}`,
				"GET /api/v3/repos/o/r/pulls":    `[]`,
				"POST /api/v3/repos/o/r/pulls":   `418 {"message":"asked too often"}`,
			})
			h.first = map[string][]string{"POST /api/v3/repos/o/r/pulls": c.posts, "GET /api/v3/repos/o/r/pulls": c.lists}
			p := proposal(t, h.URL+"/o/r/issues/7")
			p.Patch = []byte(three)
			done, _, err := publish(t, h.client(t, "GITHUB_TOKEN"), p)
			if c.says == "" && (err != nil || done.Number != 9) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %+v, %v", done, err)
			}
		})
	}
}
