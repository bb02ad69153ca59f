package forge_test

import (
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
			got.DefaultBranch != "main" || got.State != "open" || got.URL != page {
			t.Errorf("%s: got %+v", name, got)
		}
		if err := c.Clone(t.Context(), got, t.TempDir()); err != nil {
			t.Error(err)
		}
	}
	f.Call(t, "alice", http.MethodPatch, "/repos/"+project, map[string]any{"private": true})
	if _, err := readIssue(t.Context(), as(t, f, "bot"), page); err == nil || !strings.Contains(err.Error(),
		"GITEA_TOKEN may not read") {
		t.Errorf("a private repository: %v", err)
	}
}
