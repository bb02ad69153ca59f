package hub

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	answerTimeout = 5 * time.Minute // of a request to the hub itself
	pushTries     = 6
	mostFiles     = 256 // in a request
	mostAnswer    = 64 << 20

	jsonKind   = "application/json"
	lfsKind    = "application/vnd.git-lfs+json"
	commitKind = "application/x-ndjson"
)

// Pushed is what came of a push.
type Pushed struct {
	// Files counts those of the folder that are new in the repository, and Bytes what the hub's storage lacked of them.
	Files int
	Bytes int64
	// Commit is empty if the repository had everything.
	Commit string
}

// push is a folder on its way to a repository of models.
type push struct {
	*Client
	hub, repo, dir string
	pause          time.Duration // after the first failure; it doubles
	done           Pushed
}

// upload is a file of the folder.
type upload struct {
	path  string
	size  int64
	large bool
	oid   string // of a large file
}

func (p *push) local(path string) string { return filepath.Join(p.dir, filepath.FromSlash(path)) }

// Push makes the newest commit of a model's repository have the files of a folder, and leaves others that it has. A
// repository that does not exist is created, and is private. Large files go to the hub's storage first: what is there,
// also from a push that broke off, is not sent again. Hidden files stay here.
func (c *Client) Push(ctx context.Context, hub, repo, dir, message string) (Pushed, error) {
	p := push{Client: c, hub: hub, repo: repo, dir: dir, pause: time.Second}
	err := p.run(ctx, message)
	return p.done, err
}

func (p *push) run(ctx context.Context, message string) error {
	var files []map[string]any
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		switch hidden := path != p.dir && strings.HasPrefix(d.Name(), "."); {
		case err != nil:
			return err
		case hidden && d.IsDir():
			return filepath.SkipDir
		case hidden || d.IsDir():
			return nil
		}
		file, err := describe(p.dir, path)
		files = append(files, file)
		return err
	})
	if err != nil {
		return err
	}
	owner, name, _ := strings.Cut(p.repo, "/")
	refused := p.post(ctx, p.hub+"/api/repos/create", jsonKind, map[string]any{
		"name": name, "organization": owner, "type": "model", "visibility": "private",
	}, nil)
	var news []upload
	for part := range slices.Chunk(files, mostFiles) {
		more, err := p.ask(ctx, part)
		if err != nil {
			return errors.Join(err, refused) // it may exist, although this token may not create it
		}
		if err := p.store(ctx, more); err != nil {
			return err
		}
		news = append(news, more...)
	}
	if p.done.Files = len(news); len(news) == 0 {
		return nil
	}
	return p.commit(ctx, news, message)
}

// describe describes a file as the hub wants it, with its first bytes.
func describe(dir, path string) (map[string]any, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	sample, err := io.ReadAll(io.LimitReader(file, 512))
	if err != nil {
		return nil, err
	}
	name, err := filepath.Rel(dir, path)
	return map[string]any{"path": filepath.ToSlash(name), "size": info.Size(), "sample": sample}, err
}

// ask asks how the hub takes files, and returns those that the repository does not have as they are. It knows them by
// the digests that LFS and git have of them.
func (p *push) ask(ctx context.Context, files []map[string]any) (news []upload, err error) {
	var answer struct {
		Files []struct {
			Path, UploadMode, OID string
			ShouldIgnore          bool
		}
	}
	if err := p.post(ctx, p.api("preupload"), jsonKind, map[string]any{"files": files}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Files) != len(files) {
		return nil, fmt.Errorf("the hub was asked about %d files, and answers for %d", len(files), len(answer.Files))
	}
	for _, a := range answer.Files {
		i := slices.IndexFunc(files, func(f map[string]any) bool { return f["path"] == a.Path })
		if i < 0 {
			return nil, fmt.Errorf("the hub was not asked about %q", a.Path)
		}
		f := upload{path: a.Path, size: files[i]["size"].(int64)}
		f.large = a.UploadMode == "lfs" && f.size > 0
		if f.large {
			f.oid, err = File{}.Verify(p.local(f.path))
		} else {
			var text []byte
			text, err = os.ReadFile(p.local(f.path))
			sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text))
			f.oid = hex.EncodeToString(sum[:])
		}
		if err != nil {
			return nil, err
		}
		if f.oid != a.OID && !a.ShouldIgnore {
			news = append(news, f)
		}
	}
	return news, nil
}

// action is what is to be done with a large file. Header has the size of parts in chunk_size, and the address of each
// under its number.
type action struct {
	Href   string
	Header map[string]any
}

// store sends large files to the hub's storage, where it lacks them.
func (p *push) store(ctx context.Context, files []upload) error {
	files = slices.DeleteFunc(slices.Clone(files), func(f upload) bool { return !f.large })
	if len(files) == 0 {
		return nil
	}
	var objects []map[string]any
	for _, f := range files {
		objects = append(objects, map[string]any{"oid": f.oid, "size": f.size})
	}
	var answer struct {
		Objects []struct {
			OID     string
			Error   struct{ Message string }
			Actions struct{ Upload, Verify action }
		}
	}
	err := p.post(ctx, p.hub+"/"+p.repo+".git/info/lfs/objects/batch", lfsKind, map[string]any{
		"operation": "upload", "transfers": []string{"basic", "multipart"}, "hash_algo": "sha256",
		"ref": map[string]string{"name": newest}, "objects": objects,
	}, &answer)
	if err != nil {
		return err
	}
	for _, o := range answer.Objects {
		i := slices.IndexFunc(files, func(f upload) bool { return f.oid == o.OID })
		switch {
		case i < 0:
			return fmt.Errorf("the hub was not asked about the object %s", o.OID)
		case o.Error.Message != "":
			return fmt.Errorf("%s: the hub answers: %s", files[i].path, o.Error.Message)
		case o.Actions.Upload.Href == "":
			continue // it is there
		}
		f := files[i]
		err := p.send(ctx, f, o.Actions.Upload)
		if err == nil && o.Actions.Verify.Href != "" {
			err = p.post(ctx, o.Actions.Verify.Href, jsonKind, map[string]any{"oid": f.oid, "size": f.size}, nil)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		p.done.Bytes += f.size
	}
	return nil
}

// send sends a large file as a whole, or in parts, as the hub wants it.
func (p *push) send(ctx context.Context, f upload, to action) error {
	size, _ := strconv.ParseInt(fmt.Sprint(to.Header["chunk_size"]), 10, 64)
	if size <= 0 {
		_, err := p.put(ctx, f, to.Href, 0, f.size)
		return err
	}
	addresses := map[int]string{}
	for key, value := range to.Header {
		if n, err := strconv.Atoi(key); err == nil { // there may be zeros before a number
			addresses[n] = fmt.Sprint(value)
		}
	}
	if want := (f.size + size - 1) / size; int64(len(addresses)) != want {
		return fmt.Errorf("the hub wants it in %d parts of %d bytes, and takes %d", want, size, len(addresses))
	}
	var parts []map[string]any
	for n := 1; n <= len(addresses); n++ {
		at := size * int64(n-1)
		tag, err := p.put(ctx, f, addresses[n], at, min(size, f.size-at))
		if err != nil {
			return fmt.Errorf("part %d: %w", n, err)
		}
		parts = append(parts, map[string]any{"partNumber": n, "etag": tag})
	}
	return p.post(ctx, to.Href, lfsKind, map[string]any{"oid": f.oid, "parts": parts}, nil)
}

// put sends a part of a file, and returns the storage's tag for it. The address is the right to write there.
func (p *push) put(ctx context.Context, f upload, address string, at, size int64) (tag string, err error) {
	file, err := os.Open(p.local(f.path))
	if err != nil {
		return "", err
	}
	defer file.Close()
	err = p.try(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stalled := time.AfterFunc(stallTimeout, cancel)
		defer stalled.Stop()
		sent := at
		body := io.TeeReader(io.NewSectionReader(file, at, size), writer(func(b []byte) {
			stalled.Reset(stallTimeout)
			if sent += int64(len(b)); p.Progress != nil {
				p.Progress(f.path, sent, f.size)
			}
		}))
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, address, io.NopCloser(body))
		if err != nil {
			return errors.New("the hub hands out an invalid address")
		}
		request.ContentLength = size
		header, err := p.answer(request, nil)
		tag = header.Get("ETag")
		return err
	})
	return tag, err
}

// writer is a function that is told what is written.
type writer func(b []byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// commit makes a commit of what is new.
func (p *push) commit(ctx context.Context, files []upload, message string) error {
	var lines bytes.Buffer
	add := func(key string, value map[string]any) error {
		return json.NewEncoder(&lines).Encode(map[string]any{"key": key, "value": value})
	}
	err := add("header", map[string]any{"summary": message, "description": ""})
	for _, f := range files {
		if f.large {
			err = errors.Join(err, add("lfsFile", map[string]any{
				"path": f.path, "algo": "sha256", "oid": f.oid, "size": f.size,
			}))
			continue
		}
		text, unread := os.ReadFile(p.local(f.path))
		err = errors.Join(err, unread, add("file", map[string]any{"path": f.path, "content": text, "encoding": "base64"}))
	}
	if err != nil {
		return err
	}
	var answer struct{ CommitOid string }
	err = p.post(ctx, p.api("commit"), commitKind, lines.Bytes(), &answer)
	p.done.Commit = answer.CommitOid
	return err
}

func (p *push) api(what string) string {
	return p.hub + "/api/models/" + p.repo + "/" + what + "/" + newest
}

// post posts JSON, or lines that are. The token goes to the hub only, whatever addresses it hands out.
func (p *push) post(ctx context.Context, address, kind string, body, reply any) error {
	text, ok := body.([]byte)
	if !ok {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	return p.try(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", kind)
		if kind == lfsKind {
			request.Header.Set("Accept", kind)
		}
		if p.Token != "" && strings.HasPrefix(address, p.hub+"/") {
			request.Header.Set("Authorization", "Bearer "+p.Token)
		}
		_, err = p.answer(request, reply)
		return err
	})
}

// refusal is an answer that is no success.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// answer makes a request, and reads its answer.
func (p *push) answer(request *http.Request, reply any) (http.Header, error) {
	answer, err := p.do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if answer.StatusCode >= http.StatusMultipleChoices {
		said := cmp.Or(answer.Header.Get("X-Error-Message"), string(text[:min(len(text), 300)]))
		said = fmt.Sprintf("%s %s: the server answers %s: %s", request.Method, request.URL.Path, answer.Status, said)
		if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden {
			said += "; to fix: set HF_TOKEN to a token that may write there"
		}
		return nil, &refusal{answer.StatusCode, said}
	}
	if err == nil && reply != nil {
		err = json.Unmarshal(text, reply)
	}
	return answer.Header, err
}

// try does something again after failures that may pass.
func (p *push) try(ctx context.Context, do func(context.Context) error) error {
	for n := 0; ; n++ {
		err := do(ctx)
		refused, ok := errors.AsType[*refusal](err)
		passes := !ok || refused.code == http.StatusTooManyRequests || refused.code >= http.StatusInternalServerError
		if err == nil || !passes || n == pushTries-1 || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(p.pause << n):
		case <-ctx.Done():
		}
	}
}
