package hub_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepswe/env/hub"
	"deepswe/env/testkit"
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// published is a hub with one dataset, which implements what deepswe uses, and a storage host that it redirects to.
type published struct {
	files    map[string]string
	revision string
	// breaks is the number of bytes after which a transfer breaks off, once.
	breaks int
	ranges []string
	tokens []string
}

func (p *published) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.tokens = append(p.tokens, r.Header.Get("Authorization"))
	if strings.HasPrefix(r.URL.Path, "/api/datasets/lab/tasks/revision/") {
		type file struct {
			Name string            `json:"rfilename"`
			Size int               `json:"size"`
			LFS  map[string]string `json:"lfs,omitempty"`
		}
		var all []file
		for name, text := range p.files {
			f := file{Name: name, Size: len(text)}
			if strings.HasSuffix(name, ".parquet") {
				f.LFS = map[string]string{"sha256": digest(text)}
			}
			all = append(all, f)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"sha": p.revision, "siblings": all})
		return
	}
	name, found := strings.CutPrefix(r.URL.Path, "/datasets/lab/tasks/resolve/"+p.revision+"/")
	text, ok := p.files[name]
	if !found || !ok {
		http.NotFound(w, r)
		return
	}
	p.ranges = append(p.ranges, r.Header.Get("Range"))
	if p.breaks > 0 && len(text) > p.breaks {
		w.Header().Set("Content-Length", "1000000")
		_, _ = io.WriteString(w, text[:p.breaks])
		w.(http.Flusher).Flush()
		p.breaks = 0
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
}

var tasks = hub.Dataset{Name: "tasks", Dataset: "lab/tasks", Files: []string{"data/test-*.parquet", "go/*.jsonl"}}

// A dataset is fetched at the branch's current revision. A transfer continues where it broke off, and later calls check
// the files.
func TestBring(t *testing.T) {
	p := &published{revision: "c0ffee", breaks: 70, files: map[string]string{
		"data/test-00000-of-00001.parquet": strings.Repeat("parquet", 20), "go/a.jsonl": "{}\n", "README.md": "no task",
	}}
	server := httptest.NewServer(p)
	defer server.Close()
	dir := t.TempDir()
	if _, err := tasks.Bring(t.Context(), &hub.Client{}, server.URL, dir); err == nil {
		t.Error("the transfer broke off without an error")
	}
	s, err := tasks.Bring(t.Context(), &hub.Client{Token: "secret"}, server.URL+"/", dir)
	if err != nil {
		t.Fatal(err)
	}
	if s.Revision != "c0ffee" || len(s.Files) != 2 {
		t.Errorf("got %+v, want revision c0ffee and 2 files", s)
	}
	for name, text := range map[string]string{
		"data/test-00000-of-00001.parquet": p.files["data/test-00000-of-00001.parquet"], "go/a.jsonl": "{}\n",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if !strings.Contains(strings.Join(p.ranges, "|"), "bytes=70-") {
		t.Errorf("the transfer did not go on where it broke off: %q", p.ranges)
	}
	// The branch may have moved on: a missing file comes from the recorded revision.
	asked := len(p.tokens)
	if _, err := tasks.Bring(t.Context(), &hub.Client{}, "", dir); err != nil || len(p.tokens) != asked {
		t.Errorf("a complete directory, without a hub: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "go/a.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, err := tasks.Bring(t.Context(), &hub.Client{}, "", dir); !errors.Is(err, hub.ErrNoHub) {
		t.Errorf("a file is missing, without a hub: %v", err)
	}
	p.files["go/a.jsonl"] = "[]\n"
	if _, err := tasks.Bring(t.Context(), &hub.Client{}, server.URL, dir); !errors.Is(err, hub.ErrDigest) {
		t.Errorf("the hub has another file now: %v", err)
	}
	testkit.WriteFile(t, filepath.Join(dir, "go/a.jsonl"), "changed")
	if _, err := tasks.Bring(t.Context(), &hub.Client{}, server.URL, dir); !errors.Is(err, hub.ErrDigest) {
		t.Errorf("the file on this machine was changed: %v", err)
	}
}

// Files that were copied by hand are recorded. A known digest is checked for them, and for what a hub has.
func TestDigestsThatAreKnown(t *testing.T) {
	dir := t.TempDir()
	if _, err := tasks.Bring(t.Context(), &hub.Client{}, "", dir); !errors.Is(err, hub.ErrNoHub) {
		t.Errorf("nothing there: %v", err)
	}
	testkit.WriteFile(t, filepath.Join(dir, "data/test-0.parquet"), "by hand")
	d := tasks
	d.Revision, d.SHA256 = "c0ffee", map[string]string{"data/test-0.parquet": digest("published")}
	if _, err := d.Bring(t.Context(), &hub.Client{}, "", dir); !errors.Is(err, hub.ErrDigest) {
		t.Errorf("another file than the known one: %v", err)
	}
	d.SHA256["data/test-0.parquet"] = digest("by hand")
	if s, err := d.Bring(t.Context(), &hub.Client{}, "", dir); err != nil || s.Hub != "" || s.Files[0].Size != 7 {
		t.Errorf("%+v, %v", s, err)
	}
	server := httptest.NewServer(&published{revision: "c0ffee", files: map[string]string{"data/test-0.parquet": "forged"}})
	defer server.Close()
	if _, err := d.Bring(t.Context(), &hub.Client{}, server.URL, t.TempDir()); !errors.Is(err, hub.ErrDigest) {
		t.Errorf("a hub with another file than the known one: %v", err)
	}
}

// A token is sent only to the host that it was given for.
func TestToken(t *testing.T) {
	var elsewhere string
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere = r.Header.Get("Authorization")
		_, _ = io.WriteString(w, "content")
	}))
	defer storage.Close()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(w, r, storage.URL+"/file", http.StatusFound)
	}))
	defer front.Close()
	path := filepath.Join(t.TempDir(), "file")
	f := hub.File{URL: front.URL}
	if _, err := (&hub.Client{}).Fetch(t.Context(), f, path); err == nil || !strings.Contains(err.Error(), "HF_TOKEN") {
		t.Errorf("without a token: %v", err)
	}
	sum, err := (&hub.Client{Token: "secret"}).Fetch(t.Context(), f, path)
	if err != nil || sum != digest("content") || elsewhere != "" {
		t.Errorf("%v, digest %s, the storage was sent %q", err, sum, elsewhere)
	}
}

// The table of datasets can be read, and its entries are well-formed.
func TestDatasets(t *testing.T) {
	all, err := hub.Datasets()
	if err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	names := map[string]bool{}
	for _, d := range all {
		if names[d.Name] || d.Name == "" || d.About == "" || strings.Count(d.Dataset, "/") != 1 || len(d.Files) == 0 ||
			d.Revision != "" && len(d.Revision) != 40 {
			t.Errorf("%+v", d)
		}
		names[d.Name] = true
		for name, sum := range d.SHA256 {
			if len(sum) != 64 || d.Revision == "" {
				t.Errorf("%s: %s: %q", d.Name, name, sum)
			}
		}
	}
}
