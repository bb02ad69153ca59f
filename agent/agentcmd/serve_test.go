package agentcmd

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env/testkit"
)

// The printed address admits one browser, whose cookie then opens every page. Requests with another site's host are
// refused.
func TestGate(t *testing.T) {
	t.Parallel()
	var said []string
	pages := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.URL.String()) }
	g := &gate{
		pages: http.HandlerFunc(pages), host: "127.0.0.1", session: rand.Text(), token: rand.Text(),
		say: func(token string) { said = append(said, token) },
	}
	first := g.token
	s := httptest.NewServer(g)
	defer s.Close()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	get := func(c *http.Client, path, host string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		w, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		text, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.StatusCode, string(text)
	}
	browser, stranger := &http.Client{Jar: jar}, &http.Client{}
	for _, path := range []string{"/", "/?token=", "/?token=x", "/run/?token=" + first + "x"} {
		if code, _ := get(stranger, path, ""); code != http.StatusForbidden {
			t.Errorf("%s: %d", path, code)
		}
	}
	if code, text := get(browser, "/run/?q=a&token="+first, ""); code != http.StatusOK || text != "page /run/?q=a" {
		t.Errorf("with the token: %d %s", code, text)
	}
	if code, _ := get(browser, "/other", ""); code != http.StatusOK {
		t.Errorf("with the cookie: %d", code)
	}
	if code, _ := get(stranger, "/?token="+first, ""); code != http.StatusForbidden {
		t.Errorf("the same token again: %d", code)
	}
	if len(said) != 1 || said[0] == first || g.token != said[0] {
		t.Errorf("the next token is not printed: %v", said)
	}
	for host, want := range map[string]int{
		"evil.example": http.StatusMisdirectedRequest, "evil.example:80": http.StatusMisdirectedRequest,
		"127.0.0.1.evil.example": http.StatusMisdirectedRequest, "localhost": http.StatusForbidden,
		"[::1]:80": http.StatusForbidden,
	} {
		if code, _ := get(stranger, "/", host); code != want {
			t.Errorf("host %s: %d, want %d", host, code, want)
		}
	}
}

// fakePages writes the path as a page.
type fakePages struct{ http.Handler }

func (fakePages) WriteFile(w io.Writer, path string) error {
	_, err := io.WriteString(w, "page of "+path)
	return err
}

// graded makes an empty run of grade in the default directory.
func graded(t *testing.T, w *world) *run.Dir {
	t.Helper()
	d, err := run.Create(w.deps.RunDir("20261121-101500-7a1c02"), run.Manifest{Kind: run.Grade})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return d
}

// --serve takes an optional address, and shows runs, folders of runs, or the default directory. It ends with its
// context.
func TestServe(t *testing.T) {
	w := newWorld(t)
	d := graded(t, w)
	for _, c := range []struct {
		args, paths []string
	}{
		{nil, []string{filepath.Dir(d.Path())}},
		{[]string{"7a1c02"}, []string{d.Path()}},
		{[]string{"localhost:0", "last"}, []string{d.Path()}},
		{[]string{filepath.Dir(d.Path())}, []string{filepath.Dir(d.Path())}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var shown []string
		w.deps.Pages = func(_ *cli.Prices, paths ...string) (Pages, error) {
			shown = paths
			time.AfterFunc(0, cancel)
			return fakePages{http.NotFoundHandler()}, nil
		}
		w.err.Reset()
		if err := serveRuns(ctx, w.deps, freeAddress, c.args); err != nil || !slices.Equal(shown, c.paths) {
			t.Errorf("%v shows %v, want %v: %v", c.args, shown, c.paths, err)
		}
		if said := w.err.String(); !strings.Contains(said, "http://127.0.0.1:") && !strings.Contains(said, "http://[::1]:") {
			t.Errorf("%v says %q", c.args, said)
		}
		cancel()
	}
	for _, args := range [][]string{
		{"view", "--serve", "missing"}, {"view", "--serve=nowhere"}, {"view", "--serve=127.0.0.1:0", "x"},
	} {
		if code := w.run(t, args...); code != cli.ExitUsage {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}

// A run is written as one HTML page, also from an archive, whose unpacked files are removed.
func TestViewHTML(t *testing.T) {
	w := newWorld(t)
	d := graded(t, w)
	var archive bytes.Buffer
	if err := run.Pack(&archive, d.Path()); err != nil {
		t.Fatal(err)
	}
	packed := testkit.WriteFile(t, filepath.Join(w.vars["HOME"], "old"+run.ArchiveEnding), archive.String())
	damaged := testkit.WriteFile(t, filepath.Join(w.vars["HOME"], "bad"+run.ArchiveEnding), "x")
	w.deps.Pages = func(*cli.Prices, ...string) (Pages, error) { return fakePages{}, nil }
	page := filepath.Join(w.vars["HOME"], "page.html")
	for arg, want := range map[string]string{"last": "7a1c02", packed: "/old"} {
		if code := w.run(t, "view", "--html", page, arg); code != cli.ExitDone {
			t.Fatalf("%s: exit code %d: %s", arg, code, &w.err)
		}
		if text, err := os.ReadFile(page); err != nil || !strings.HasSuffix(string(text), want) {
			t.Errorf("%s: %s, %v", arg, text, err)
		}
	}
	code := w.run(t, "view", packed)
	if code != cli.ExitDone || !strings.Contains(w.out.String(), "7a1c02  grade, begun") {
		t.Errorf("the archive is shown as\n%s%s", &w.out, &w.err)
	}
	for _, args := range [][]string{
		{"view", damaged}, {"view", "--html", page, "missing"}, {"view", "--html", "x", "--serve"},
	} {
		if code := w.run(t, args...); code == cli.ExitDone {
			t.Errorf("%v succeeds", args)
		}
	}
}
