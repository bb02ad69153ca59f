package testkit

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// Forge is a real Gitea that .ci/run starts, with two users: alice, who owns alice/lib, and bot, who may not write to
// it.
type Forge struct {
	URL    string
	Tokens map[string]string // by user
}

// OpenForge returns the Gitea that the file named by DEEPSWE_TEST_GITEA describes: its address, and a line for each
// user with the token. The test skips if there is none.
func OpenForge(t testing.TB) *Forge {
	t.Helper()
	path := os.Getenv("DEEPSWE_TEST_GITEA")
	if path == "" {
		Skip(t, "gitea", "DEEPSWE_TEST_GITEA names no file with the address of a Gitea; .ci/run does")
	}
	said, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	f := &Forge{Tokens: map[string]string{}}
	for line := range strings.Lines(string(said)) {
		switch words := strings.Fields(line); len(words) {
		case 1:
			f.URL = words[0]
		case 2:
			f.Tokens[words[0]] = words[1]
		}
	}
	return f
}

// Call makes a request to the API as a user, and returns the object of the answer, which must be a success.
func (f *Forge) Call(t testing.TB, user, method, path string, body any) map[string]any {
	t.Helper()
	var got map[string]any
	f.call(t, user, method, path, body, &got)
	return got
}

// List requests a list from the API as a user.
func (f *Forge) List(t testing.TB, user, path string) []map[string]any {
	t.Helper()
	var got []map[string]any
	f.call(t, user, http.MethodGet, path, nil, &got)
	return got
}

// Merge merges a pull request, given by its path in the API. Gitea looks for conflicts anew after every change of the
// title, and refuses meanwhile, so Merge tries again.
func (f *Forge) Merge(t testing.TB, user, pull string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		status, data := f.send(t, user, http.MethodPost, pull+"/merge", map[string]any{"Do": "merge"})
		if status == http.StatusOK {
			return
		}
		if status != http.StatusMethodNotAllowed || time.Now().After(deadline) {
			t.Fatalf("merging %s: %d %s", pull, status, data)
		}
	}
}

func (f *Forge) call(t testing.TB, user, method, path string, body, into any) {
	t.Helper()
	status, data := f.send(t, user, method, path, body)
	if status > 299 {
		t.Fatalf("%s %s: %d %s", method, path, status, data)
	}
	_ = json.Unmarshal(data, into) // some answers are empty
}

func (f *Forge) send(t testing.TB, user, method, path string, body any) (status int, data []byte) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(method, f.URL+"/api/v1"+path, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "token "+f.Tokens[user])
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, err = io.ReadAll(resp.Body); err != nil {
		t.Fatalf("%s %s: %s %v", method, path, resp.Status, err)
	}
	return resp.StatusCode, data
}

// NewRepository makes a repository of alice's with these files, and returns its path (owner/name).
func (f *Forge) NewRepository(t testing.TB, files map[string]string) string {
	t.Helper()
	name := "r" + strings.ToLower(rand.Text()[:10])
	f.Call(t, "alice", http.MethodPost, "/user/repos", map[string]any{"name": name, "auto_init": true,
		"default_branch": "main"})
	var changes []map[string]string
	for path, text := range files {
		changes = append(changes, map[string]string{"operation": "create", "path": path,
			"content": base64.StdEncoding.EncodeToString([]byte(text))})
	}
	f.Call(t, "alice", http.MethodPost, "/repos/alice/"+name+"/contents", map[string]any{"files": changes,
		"message": "Begin", "branch": "main"})
	t.Cleanup(func() { f.Call(t, "alice", http.MethodDelete, "/repos/alice/"+name, nil) })
	return "alice/" + name
}
