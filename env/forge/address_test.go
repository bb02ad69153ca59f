package forge

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for page, want := range map[string]Address{
		"https://github.com/o/r/issues/7":      {host: "github.com", names: []string{"o", "r"}, Number: 7},
		"https://www.GitHub.com/o/r/pull/9/#x": {host: "github.com", names: []string{"o", "r"}, Number: 9, Pull: true, kind: GitHub},
		"https://codeberg.org/o/r/pulls/9":     {host: "codeberg.org", names: []string{"o", "r"}, Number: 9, Pull: true, kind: Gitea},
		"https://gitlab.com/g/s/p/-/issues/3":  {host: "gitlab.com", names: []string{"g", "s", "p"}, Number: 3, kind: GitLab},
		"https://gitlab.com/g/p/-/work_items/3": {host: "gitlab.com", names: []string{"g", "p"}, Number: 3,
			kind: GitLab},
		"https://gitlab.com/g/p/-/merge_requests/4/diffs": {host: "gitlab.com", names: []string{"g", "p"}, Number: 4,
			Pull: true, kind: GitLab},
		"https://h/git/o/r/issues/7?x=1#issuecomment-5": {host: "h", names: []string{"git", "o", "r"}, Number: 7},
	} {
		want.scheme = "https"
		got, err := Parse(page)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || got.Pull != want.Pull || got.kind != want.kind {
			t.Errorf("%s: got %#v, %v", page, got, err)
		}
		if again, err := Parse(got.String()); err != nil || fmt.Sprintf("%#v", again) != fmt.Sprintf("%#v", got) {
			t.Errorf("%s becomes %s, which is %#v, %v", page, got, again, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("https://h/a/b/c/-/issues/3")
	f.Fuzz(func(t *testing.T, page string) {
		got, err := Parse(page)
		if err != nil {
			return
		}
		if again, err := Parse(got.String()); err != nil || again.String() != got.String() {
			t.Errorf("%q becomes %q, then %q, %v", page, got, again, err)
		}
	})
}

func TestParseRemote(t *testing.T) {
	for remote, want := range map[string]string{
		"https://github.com/o/r.git":             "https://github.com/o/r/issues/7",
		"https://user@github.com/o/r":            "https://github.com/o/r/issues/7",
		"git@github.com:o/r.git":                 "https://github.com/o/r/issues/7",
		"git@gitlab.com:g/s/p.git":               "https://gitlab.com/g/s/p/issues/7",
		"ssh://git@git.example.org:2222/o/r.git": "https://git.example.org/o/r/issues/7",
		"http://localhost:3000/o/r":              "http://localhost:3000/o/r/issues/7",
		"/home/ann/r.git":                        "", "": "", "../r": "",
	} {
		a, ok := ParseRemote(remote)
		a.Number = 7
		if ok != (want != "") || ok && a.String() != want {
			t.Errorf("%s: got %s, want %q", remote, a, want)
		}
	}
}

// A host is asked without a token which forge it is.
func TestProbe(t *testing.T) {
	answer := func(path string, status int, text string, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization")+r.Header.Get("Private-Token") != "" {
				t.Error("a token was sent to a host that is not known yet")
			}
			if r.URL.Path != path {
				http.Error(w, "<html>", http.StatusNotFound)
				return
			}
			if len(header) > 0 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		}
	}
	for name, c := range map[string]struct {
		host    http.HandlerFunc
		page    string
		kind    Kind
		project string
		api     string
	}{
		"Gitea":      {answer("/api/v1/version", 200, `{"version":"1.26.0"}`), "/o/r/issues/1", Gitea, "o/r", "/api/v1"},
		"Gitea pull": {answer("/api/v1/version", 200, `{"version":"1.26.0"}`), "/o/r/pulls/1", Gitea, "o/r", "/api/v1"},
		"Forgejo": {answer("/api/v1/version", 200, `{"version":"11.0.1+gitea-1.22.0"}`), "/o/r/issues/1", Gitea, "o/r",
			"/api/v1"},
		"Gitea below a path": {answer("/git/api/v1/version", 200, `{"version":"1.26.0"}`), "/git/o/r/issues/1", Gitea, "o/r",
			"/git/api/v1"},
		"closed Gitea": {answer("/api/v1/version", 403, `{"message":"Only signed in user is allowed to call APIs."}`),
			"/o/r/issues/1", Gitea, "o/r", "/api/v1"},
		"GitLab": {answer("/api/v4/version", 401, `{"message":"401 Unauthorized"}`), "/g/s/p/-/issues/1", GitLab, "g/s/p",
			"/api/v4"},
		"GitLab by its number": {answer("/api/v4/version", 401, `{"message":"401 Unauthorized"}`), "/g/s/p/issues/1", GitLab,
			"g/s/p", "/api/v4"},
		"GitLab below a path": {answer("/lab/api/v4/version", 401, `{"message":"401 Unauthorized"}`), "/lab/g/p/-/issues/1",
			GitLab, "g/p", "/lab/api/v4"},
		"Enterprise": {answer("/api/v3/meta", 200, `{"installed_version":"3.15.0"}`), "/o/r/issues/1", GitHub, "o/r", "/api/v3"},
		"closed Enterprise": {answer("/api/v3/meta", 401, `{"message":"Must authenticate"}`, "X-GitHub-Request-Id", "1:2"),
			"/o/r/issues/1", GitHub, "o/r", "/api/v3"},
		"none":          {answer("/", 200, "hello"), "/o/r/issues/1", "", "", ""},
		"a closed site": {answer("/api/v4/version", 401, "<html>"), "/o/r/issues/1", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.host)
			defer server.Close()
			a, err := Parse(server.URL + c.page)
			if err != nil {
				t.Fatal(err)
			}
			client, err := New(Options{Getenv: func(string) string { return "tok" }})
			if err != nil {
				t.Fatal(err)
			}
			s, project, err := client.locate(t.Context(), a)
			if c.kind == "" {
				if err == nil || !strings.Contains(err.Error(), "neither as GitHub nor") {
					t.Errorf("got %+v, %v", s, err)
				}
				return
			}
			if err != nil || s.kind != c.kind || project != c.project || s.api.String() != server.URL+c.api {
				t.Errorf("got %s %s at %s, %v", s.kind, project, s.api, err)
			}
		})
	}
}

// A token from a variable is sent only to hosts that it is known to belong to.
func TestTokensAreBound(t *testing.T) {
	for name, c := range map[string]struct {
		kind Kind
		web  string
		vars map[string]string
		want string
	}{
		"GitHub":                {GitHub, "https://github.com", map[string]string{"GITHUB_TOKEN": "a", "GH_TOKEN": "b"}, "a"},
		"the second name":       {GitHub, "https://github.com", map[string]string{"GH_TOKEN": "b"}, "b"},
		"data residency":        {GitHub, "https://x.ghe.com", map[string]string{"GH_TOKEN": "b"}, "b"},
		"an unknown Enterprise": {GitHub, "https://git.corp", map[string]string{"GH_TOKEN": "b"}, ""},
		"one's own Enterprise":  {GitHub, "https://git.corp", map[string]string{"GH_ENTERPRISE_TOKEN": "b", "GH_HOST": "git.corp"}, "b"},
		"Codeberg":              {Gitea, "https://codeberg.org", map[string]string{"GITEA_TOKEN": "g", "GITHUB_TOKEN": "a"}, "g"},
		"one's own Gitea":       {Gitea, "https://git.corp", map[string]string{"GITEA_TOKEN": "g", "GITEA_SERVER_URL": "https://git.corp/"}, "g"},
		"another's Gitea":       {Gitea, "https://evil.org", map[string]string{"GITEA_TOKEN": "g", "GITEA_SERVER_URL": "https://git.corp"}, ""},
		"CI of Gitea":           {Gitea, "https://git.corp", map[string]string{"GITHUB_TOKEN": "a", "GITHUB_SERVER_URL": "https://git.corp"}, "a"},
		"no CI of Gitea":        {Gitea, "https://codeberg.org", map[string]string{"GITHUB_TOKEN": "a"}, ""},
		"GitLab":                {GitLab, "https://gitlab.com", map[string]string{"GITLAB_TOKEN": "l"}, "l"},
		"this machine":          {GitLab, "http://127.0.0.1:8080", map[string]string{"GITLAB_TOKEN": "l"}, "l"},
		"plain HTTP":            {GitLab, "http://gitlab.com", map[string]string{"GITLAB_TOKEN": "l"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := New(Options{Getenv: func(name string) string { return c.vars[name] }})
			if err != nil {
				t.Fatal(err)
			}
			root, err := url.Parse(c.web)
			if err != nil {
				t.Fatal(err)
			}
			s := newSite(c.kind, root, "")
			if got := client.token(t.Context(), s); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if said := client.withheld(s); c.want == "" && root.Scheme == "https" && len(c.vars) > 0 && c.kind != Gitea &&
				!strings.Contains(said, "says that it belongs there") {
				t.Errorf("it says %q", said)
			}
		})
	}
}
