package forge_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"deepswe/env/forge"
	"deepswe/env/testkit"
)

// as returns a client with the token of a user of a real Gitea.
func as(t *testing.T, f *testkit.Forge, user string) *forge.Client {
	t.Helper()
	c, err := forge.New(forge.Options{Getenv: func(name string) string {
		return map[string]string{"GITEA_TOKEN": f.Tokens[user]}[name]
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newIssue opens an issue, and returns its address.
func newIssue(t *testing.T, f *testkit.Forge, project, title, body string) string {
	t.Helper()
	got := f.Call(t, "alice", http.MethodPost, "/repos/"+project+"/issues", map[string]any{"title": title, "body": body})
	return got["html_url"].(string)
}

func TestGiteaIssue(t *testing.T) {
	f := testkit.OpenForge(t)
	project := f.NewRepository(t, map[string]string{"hello.txt": "goodbye\n"})
	page := newIssue(t, f, project, "It says\u202e goodbye\u0007", "Say hello. <!-- hidden --> \U000E0041")
	f.Call(t, "bot", http.MethodPost, "/repos/"+project+"/issues/1/comments", map[string]any{"body": "In hello.txt."})
	for name, c := range map[string]*forge.Client{"a stranger": as(t, f, "nobody"), "its owner": as(t, f, "alice")} {
		got, err := readIssue(t.Context(), c, page)
		if err != nil {
			t.Fatal(err)
		}
		if got.Kind != forge.Gitea || got.Owner+"/"+got.Repo != project || got.Title != "It says goodbye" ||
			got.Body != "Say hello." || len(got.Comments) != 1 || got.Comments[0].Author != "bot" ||
			got.State != "open" || got.URL != page {
			t.Errorf("%s: got %+v", name, got)
		}
		if err := c.Clone(t.Context(), forge.Task{URL: got.URL, CloneURL: got.CloneURL}, t.TempDir()); err != nil {
			t.Error(err)
		}
	}
	f.Call(t, "alice", http.MethodPatch, "/repos/"+project, map[string]any{"private": true})
	if _, err := readIssue(t.Context(), as(t, f, "bot"), page); err == nil || !strings.Contains(err.Error(),
		"GITEA_TOKEN may not read") {
		t.Errorf("a private repository: %v", err)
	}
}

// hello is a patch of hello.txt.
const hello = "diff --git a/hello.txt b/hello.txt\n--- a/hello.txt\n+++ b/hello.txt\n@@ -1 +1 @@\n-goodbye\n+hello\n"

func proposal(t *testing.T, page string) forge.Proposal {
	t.Helper()
	to, err := forge.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	return forge.Proposal{
		To: to, Patch: []byte(hello), Run: "20261124-101500-7a1c02", Title: "Say hello\x1b[31m",
		Summary:  "It says hello now, which fixes #999 as @alice asked.\n/close",
		Verified: "`make test` fails without the patch and passes with it", Made: "Made by deepswe with a model.",
		Name: "Ann", Email: "ann@example.invalid",
	}
}

// publish prepares and publishes a proposal.
func publish(t *testing.T, c *forge.Client, p forge.Proposal) (forge.Published, *forge.Draft, error) {
	t.Helper()
	d, err := c.Prepare(t.Context(), p, t.TempDir())
	if err != nil {
		return forge.Published{}, nil, err
	}
	done, err := d.Publish(t.Context())
	return done, d, err
}

// An issue becomes a draft: as the repository's owner, as a stranger with a fork, and by a push alone.
func TestGiteaDraft(t *testing.T) {
	f := testkit.OpenForge(t)
	for name, c := range map[string]struct {
		user string
		via  forge.Via
		from string
	}{
		"its owner":  {"alice", forge.Auto, "alice"},
		"a stranger": {"bot", forge.Auto, "bot"},
		"AGit":       {"bot", forge.AGit, "alice"},
	} {
		t.Run(name, func(t *testing.T) {
			project := f.NewRepository(t, map[string]string{"hello.txt": "goodbye\n", "CONTRIBUTING.md": "Sign off (git commit -s).\n",
				".gitea/pull_request_template.md": "<!-- help -->\n## Summary\n\n## Testing\n\n- [ ] fixes #998\n"})
			page := newIssue(t, f, project, "It says goodbye", "Say hello.")
			p := proposal(t, page)
			p.Via = c.via
			done, d, err := publish(t, as(t, f, c.user), p)
			if err != nil {
				t.Fatal(err)
			}
			if c.user == "bot" && c.via != forge.AGit {
				t.Cleanup(func() { f.Call(t, "bot", http.MethodDelete, "/repos/"+d.From, nil) })
			}
			number := fmt.Sprintf("/repos/%s/pulls/%d", project, done.Number)
			got := f.Call(t, "alice", http.MethodGet, number, nil)
			head := got["head"].(map[string]any)
			if got["draft"] != true || got["title"] != "WIP: Say hello[31m" || !strings.HasPrefix(d.From, c.from+"/") ||
				head["sha"] != done.Commit || got["html_url"] != done.URL {
				t.Errorf("got %v from %s", got, d.From)
			}
			body := got["body"].(string)
			want := "## Summary\n\nIt says hello now, which fixes #\u200b999 as @\u200balice asked.\n/\u200bclose\n\n## Testing\n\n" +
				"`make test` fails without the patch and passes with it\n\n- [ ] fixes #\u200b998\n\nFixes #1\n\n---\n" +
				"Made by deepswe with a model.\n<!-- deepswe "
			if !strings.HasPrefix(body, want) {
				t.Errorf("the body is\n%s\nwant\n%s", body, want)
			}
			commit := f.Call(t, "alice", http.MethodGet, "/repos/"+project+"/git/commits/"+done.Commit, nil)
			message := commit["commit"].(map[string]any)["message"].(string)
			if !strings.Contains(message, "\nIssue: "+page+"\n") || !strings.Contains(message, "Signed-off-by: Ann <ann@") ||
				strings.Contains(message, "ixes #1") || strings.Contains(message, "@alice") {
				t.Errorf("the commit says\n%s", message)
			}

			// A second run updates the draft.
			p.Run, p.Summary = "20261125-101500-7a1c03", "It says hello, and more."
			p.Patch = []byte(strings.Replace(hello, "+hello", "+hello!", 1))
			again, d, err := publish(t, as(t, f, c.user), p)
			if err != nil || again.Number != done.Number || !again.Updated || d.Updates != done.URL {
				t.Fatalf("got %+v, %v", again, err)
			}
			got = f.Call(t, "alice", http.MethodGet, number, nil)
			if got["head"].(map[string]any)["sha"] != again.Commit || !strings.Contains(got["body"].(string), "and more") {
				t.Errorf("after the second run: %v", got)
			}

			// Without a change there is nothing to push. Merging closes the issue.
			if third, _, err := publish(t, as(t, f, c.user), p); err != nil || third.Commit != again.Commit {
				t.Errorf("got %+v, %v", third, err)
			}
			f.Call(t, "alice", http.MethodPatch, number, map[string]any{"title": "Say hello"})
			f.Merge(t, "alice", number)
			if issue := f.Call(t, "alice", http.MethodGet, "/repos/"+project+"/issues/1", nil); issue["state"] != "closed" {
				t.Errorf("after the merge the issue is %v", issue["state"])
			}
		})
	}
}

// The stranger's fork has another default branch and commits of its own, a file's name has terminal control characters,
// and the review is about that file.
func TestGiteaHostileNames(t *testing.T) {
	const odd = "two  words\x1b[31m.txt"
	f := testkit.OpenForge(t)
	project := f.NewRepository(t, map[string]string{"hello.txt": "goodbye\n", odd: "goodbye\n"})
	page := newIssue(t, f, project, "It says goodbye", "Fixes #77. Say hello.")
	fork := f.Call(t, "bot", http.MethodPost, "/repos/"+project+"/forks", map[string]any{})["full_name"].(string)
	t.Cleanup(func() { f.Call(t, "bot", http.MethodDelete, "/repos/"+fork, nil) })
	f.Call(t, "bot", http.MethodPost, "/repos/"+fork+"/branches", map[string]any{"new_branch_name": "own"})
	f.Call(t, "bot", http.MethodPatch, "/repos/"+fork, map[string]any{"default_branch": "own"})
	for _, branch := range []string{"own", "main"} {
		f.Call(t, "bot", http.MethodPost, "/repos/"+fork+"/contents/mine.txt", map[string]any{"content": "eA==", "branch": branch})
	}

	p := proposal(t, page)
	quoted := `"%s/two  words\033[31m.txt"`
	p.Patch = []byte(hello + "diff --git " + fmt.Sprintf(quoted, "a") + " " + fmt.Sprintf(quoted, "b") + "\n--- " +
		fmt.Sprintf(quoted, "a") + "\n+++ " + fmt.Sprintf(quoted, "b") + "\n@@ -1 +1 @@\n-goodbye\n+hello\n")
	done, d, err := publish(t, as(t, f, "bot"), p)
	if err != nil || d.From != fork || d.Into != "main" {
		t.Fatalf("got %+v, %v", done, err)
	}
	number := fmt.Sprintf("/repos/%s/pulls/%d", project, done.Number)
	if files := f.List(t, "alice", number+"/files"); len(files) != 2 {
		t.Errorf("it brings %v", files)
	}
	f.Call(t, "alice", http.MethodPost, number+"/reviews", map[string]any{"event": "REQUEST_CHANGES", "body": "One more.",
		"comments": []any{map[string]any{"path": odd, "new_position": 1, "body": "Say it twice.\n/close"}}})

	if p.To, err = forge.Parse(done.URL); err != nil {
		t.Fatal(err)
	}
	review, err := as(t, f, "bot").Review(t.Context(), p.To)
	if err != nil || len(review.Threads) != 1 || review.Threads[0].Path != odd ||
		strings.Contains(review.Statement(), "\x1b") {
		t.Fatalf("got %+v, %v", review, err)
	}
	p.Patch = []byte(strings.NewReplacer("-goodbye", "-hello", "+hello", "+hello hello").Replace(string(p.Patch)))
	p.Answers = map[string]string{review.Threads[0].ID: "It does, @alice; closes #1."}
	again, _, err := publish(t, as(t, f, "bot"), p)
	if err != nil || again.Answered != 1 || again.Number != done.Number || !again.Updated {
		t.Fatalf("got %+v, %v", again, err)
	}
	if review, err = as(t, f, "bot").Review(t.Context(), p.To); err != nil || len(review.Threads) != 0 {
		t.Errorf("open after the answer: %+v, %v", review.Threads, err)
	}
	// A new run for the issue never replaces a person's commit on the branch.
	f.Call(t, "bot", http.MethodPost, "/repos/"+fork+"/contents/theirs.txt", map[string]any{"content": "eA==",
		"branch": done.Branch})
	p = proposal(t, page)
	if _, _, err := publish(t, as(t, f, "bot"), p); !errors.Is(err, forge.ErrForeign) {
		t.Errorf("got %v", err)
	}
}

// If a stranger already has a repository of that name, the fork gets another name, which a second run finds.
func TestGiteaForkNameTaken(t *testing.T) {
	f := testkit.OpenForge(t)
	project := f.NewRepository(t, map[string]string{"hello.txt": "goodbye\n"})
	name := strings.TrimPrefix(project, "alice/")
	f.Call(t, "bot", http.MethodPost, "/user/repos", map[string]any{"name": name})
	t.Cleanup(func() { f.Call(t, "bot", http.MethodDelete, "/repos/bot/"+name, nil) })
	p := proposal(t, newIssue(t, f, project, "It says goodbye", "Say hello."))
	done, d, err := publish(t, as(t, f, "bot"), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Call(t, "bot", http.MethodDelete, "/repos/"+d.From, nil) })
	p.Run, p.Patch = "20261125-101500-7a1c03", []byte(strings.Replace(hello, "+hello", "+hello!", 1))
	again, d, err := publish(t, as(t, f, "bot"), p)
	if err != nil || d.From != "bot/alice-"+name || again.Number != done.Number || !again.Updated {
		t.Errorf("got %+v from %s, %v", again, d.From, err)
	}
}
