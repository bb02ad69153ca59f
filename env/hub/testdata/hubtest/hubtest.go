// Package hubtest is a hub that takes models. It has the part of the Hugging Face API that huggingface_hub 2.4.0 uses
// without hf_xet, and refuses what the real hub refuses.
package hubtest

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Token is the only token that may write.
const Token = "hf_secret"

// Hub is a hub with one repository, and a storage beside it.
type Hub struct {
	// URL is the address of the hub, and Storage that of the storage for large files.
	URL, Storage string
	// Part is the size of the parts of larger files; 0 takes all as a whole.
	Part int
	// Fail, if not nil, is called before each answer; a status other than 0 replaces the answer.
	Fail func(r *http.Request) int

	mu sync.Mutex
	// Repo is the repository's name once it exists, Private whether only its owner sees it, Files its content by path,
	// and Commits the number of its commits.
	Repo    string
	Private bool
	Files   map[string]string
	Commits int
	// Stored are large files by their digests.
	Stored map[string]string
	parts  map[string]map[int]string
	// Requests are those that were made, with the interesting part of their bodies.
	Requests []string
}

// New starts a hub.
func New(t testing.TB) *Hub {
	h := &Hub{Files: map[string]string{}, Stored: map[string]string{}, parts: map[string]map[int]string{}}
	for _, s := range []struct {
		url *string
		do  func(r *http.Request, body []byte) (any, int)
	}{{&h.URL, h.answer}, {&h.Storage, h.store}} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.Fail != nil {
				if code := h.Fail(r); code != 0 {
					w.WriteHeader(code)
					return
				}
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			reply, code := s.do(r, body)
			if tag, ok := reply.(etag); ok {
				w.Header().Set("ETag", string(tag))
			}
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(reply)
		}))
		t.Cleanup(server.Close)
		*s.url = server.URL
	}
	return h
}

type etag string

func refuse(format string, args ...any) (any, int) {
	return map[string]string{"error": fmt.Sprintf(format, args...)}, http.StatusBadRequest
}

type object struct {
	OID  string `json:"oid"`
	Size int    `json:"size"`
}

func (h *Hub) answer(r *http.Request, body []byte) (any, int) {
	if r.URL.Path == "/api/validate-yaml" { // huggingface_hub has a page checked here first
		return map[string]any{"errors": []any{}, "warnings": []any{}}, http.StatusOK
	}
	h.Requests = append(h.Requests, r.Method+" "+r.URL.Path+" "+strings.TrimSpace(string(body)))
	complete := strings.HasPrefix(r.URL.Path, "/complete/") // its address is the right to call it
	if r.Header.Get("Authorization") != "Bearer "+Token && !complete {
		return map[string]string{"error": "Invalid username or password."}, http.StatusUnauthorized
	}
	lfs := strings.Contains(r.URL.Path, "/info/lfs/") || complete
	kind := "application/json"
	switch {
	case lfs:
		kind = "application/vnd.git-lfs+json"
	case strings.Contains(r.URL.Path, "/commit/"):
		kind = "application/x-ndjson"
	}
	if got := r.Header.Get("Content-Type"); got != kind {
		return refuse("Content-Type is %s, not %s", got, kind)
	}
	if r.URL.Path == "/api/repos/create" {
		return h.create(body)
	}
	switch prefix := "/api/models/" + h.Repo; r.URL.Path {
	case prefix + "/preupload/main":
		return h.preupload(body)
	case "/" + h.Repo + ".git/info/lfs/objects/batch":
		return h.batch(body)
	case prefix + "/commit/main":
		return h.commit(body)
	case "/verify":
		var o object
		if json.Unmarshal(body, &o) != nil || len(h.Stored[o.OID]) != o.Size || o.Size == 0 {
			return refuse("not stored: %s", body)
		}
		return struct{}{}, http.StatusOK
	}
	if complete {
		return h.complete(strings.TrimPrefix(r.URL.Path, "/complete/"), body)
	}
	return map[string]string{"error": "Repository not found"}, http.StatusNotFound
}

func (h *Hub) create(body []byte) (any, int) {
	var in struct{ Name, Organization, Type, Visibility string }
	if json.Unmarshal(body, &in) != nil || in.Type != "model" {
		return refuse("invalid: %s", body)
	}
	if name := in.Organization + "/" + in.Name; h.Repo != name {
		h.Repo, h.Private = name, in.Visibility == "private"
		return map[string]string{"url": h.URL + "/" + h.Repo}, http.StatusOK
	}
	return map[string]string{"error": "You already created this model repo"}, http.StatusConflict
}

func (h *Hub) preupload(body []byte) (any, int) {
	var in struct {
		Files []struct {
			Path   string
			Sample []byte
			Size   int
		}
	}
	if err := json.Unmarshal(body, &in); err != nil || len(in.Files) > 256 {
		return refuse("invalid: %v", err)
	}
	var out []map[string]any
	for _, f := range in.Files {
		if len(f.Sample) != min(512, f.Size) {
			return refuse("%s: a sample of %d bytes", f.Path, len(f.Sample))
		}
		mode := "regular"
		if strings.HasSuffix(f.Path, ".safetensors") || f.Size > 10<<20 {
			mode = "lfs"
		}
		m := map[string]any{"path": f.Path, "uploadMode": mode, "shouldIgnore": strings.HasSuffix(f.Path, ".tmp")}
		if text, ok := h.Files[f.Path]; ok && mode == "lfs" {
			m["oid"] = fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		} else if ok {
			m["oid"] = fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text)))
		}
		out = append(out, m)
	}
	return map[string]any{"files": out}, http.StatusOK
}

func (h *Hub) batch(body []byte) (any, int) {
	var in struct {
		Operation string
		Transfers []string
		Algo      string `json:"hash_algo"`
		Ref       struct{ Name string }
		Objects   []object
	}
	if json.Unmarshal(body, &in) != nil || in.Operation != "upload" || in.Algo != "sha256" || in.Ref.Name != "main" ||
		!slices.Equal(in.Transfers, []string{"basic", "multipart"}) || len(in.Objects) > 256 {
		return refuse("invalid: %s", body)
	}
	var out []map[string]any
	for _, o := range in.Objects {
		answer := map[string]any{"oid": o.OID, "size": o.Size}
		if _, ok := h.Stored[o.OID]; !ok {
			answer["actions"] = map[string]any{
				"upload": h.upload(o), "verify": map[string]any{"href": h.URL + "/verify"},
			}
		}
		out = append(out, answer)
	}
	return map[string]any{"transfer": "multipart", "objects": out}, http.StatusOK
}

func (h *Hub) upload(o object) map[string]any {
	if h.Part == 0 || o.Size <= h.Part {
		return map[string]any{"href": h.Storage + "/" + o.OID}
	}
	header := map[string]any{"chunk_size": strconv.Itoa(h.Part)}
	for n := 1; (n-1)*h.Part < o.Size; n++ {
		header[fmt.Sprintf("%05d", n)] = fmt.Sprintf("%s/%s/%d?signature=secret", h.Storage, o.OID, n)
	}
	h.parts[o.OID] = map[int]string{}
	return map[string]any{"href": h.URL + "/complete/" + o.OID, "header": header}
}

// store is the storage, which knows no tokens.
func (h *Hub) store(r *http.Request, body []byte) (any, int) {
	oid, part, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	h.Requests = append(h.Requests, fmt.Sprintf("%s storage %s %d", r.Method, r.URL.Path, len(body)))
	if r.Header.Get("Authorization") != "" || r.ContentLength < 0 || r.Method != http.MethodPut {
		return refuse("only a PUT of a length without a token is signed")
	}
	if part == "" {
		return h.keep(oid, string(body))
	}
	n, _ := strconv.Atoi(part)
	h.parts[oid][n] = string(body)
	return etag(fmt.Sprintf(`"%x"`, sha1.Sum(body))), http.StatusOK
}

func (h *Hub) keep(oid, text string) (any, int) {
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); sum != oid {
		return refuse("the digest is %s, not %s", sum, oid)
	}
	h.Stored[oid] = text
	return struct{}{}, http.StatusOK
}

func (h *Hub) complete(oid string, body []byte) (any, int) {
	var in struct {
		OID   string
		Parts []struct {
			PartNumber int
			ETag       string
		}
	}
	if json.Unmarshal(body, &in) != nil || in.OID != oid || len(in.Parts) != len(h.parts[oid]) {
		return refuse("invalid: %s", body)
	}
	var all strings.Builder
	for i, p := range in.Parts {
		text := h.parts[oid][i+1]
		if p.PartNumber != i+1 || p.ETag != fmt.Sprintf(`"%x"`, sha1.Sum([]byte(text))) {
			return refuse("part %d: %+v", i+1, p)
		}
		all.WriteString(text)
	}
	return h.keep(oid, all.String())
}

func (h *Hub) commit(body []byte) (any, int) {
	files := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 64<<20)
	for n := 0; lines.Scan(); n++ {
		var in struct {
			Key   string
			Value struct {
				Summary, Path, Algo, OID, Encoding string
				Content                            []byte
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &in); err != nil || (n == 0) != (in.Key == "header") {
			return refuse("line %d: %v", n, err)
		}
		text, stored := h.Stored[in.Value.OID]
		switch {
		case in.Key == "header" && in.Value.Summary != "":
		case in.Key == "lfsFile" && in.Value.Algo == "sha256" && stored:
			files[in.Value.Path] = text
		case in.Key == "file" && in.Value.Encoding == "base64" && len(in.Value.Content) < 10<<20:
			files[in.Value.Path] = string(in.Value.Content)
		default:
			return refuse("line %d: %s of %s, stored: %v", n, in.Key, in.Value.Path, stored)
		}
	}
	if len(files) == 0 {
		return refuse("nothing to commit")
	}
	for path, text := range files {
		h.Files[path] = text
	}
	h.Commits++
	oid := fmt.Sprintf("%040x", h.Commits)
	return map[string]any{"commitUrl": h.URL + "/" + h.Repo + "/commit/" + oid, "commitOid": oid}, http.StatusOK
}
