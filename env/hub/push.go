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

	"deepswe/env"
)

const (
	answerTimeout = 5 * time.Minute // of a request to the hub itself
	pushTries     = 6
	mostFiles     = 256 // in a request
	mostAnswer    = 64 << 20

	jsonKind = "application/json"
	lfsKind  = "application/vnd.git-lfs+json"
)

// Pushed is the result of a push: the number of files that are new in the repository, how many of their bytes the
// hub's storage lacked, and the commit, which is empty if the repository had everything.
type Pushed struct {
	Files  int
	Bytes  int64
	Commit string
}

// push is a folder on its way to a repository of models.
type push struct {
	*Client
	hub, repo, dir string
	done           Pushed
}

// upload is a file of the folder, with the digest by which git or, for a large file, LFS knows its content.
type upload struct {
	path, oid string
	size      int64
	large     bool
}

// Push commits the files of a folder to a model's repository, and leaves the repository's other files as they are. If
// the repository does not exist, it is created as a private one. Large files go to the hub's storage first: what is
// there, even from a push that broke off, is not sent again. Hidden files are not pushed.
func (c *Client) Push(ctx context.Context, hub, repo, dir, message string) (Pushed, error) {
	p := push{Client: c, hub: hub, repo: repo, dir: dir}
	files, err := p.list()
	if err != nil {
		return p.done, err
	}
	owner, name, _ := strings.Cut(repo, "/")
	refused := p.post(ctx, hub+"/api/repos/create", jsonKind, map[string]any{
		"name": name, "organization": owner, "type": "model", "visibility": "private",
	}, nil)
	var news []upload
	for part := range slices.Chunk(files, mostFiles) {
		more, err := p.ask(ctx, part)
		if err != nil {
			return p.done, errors.Join(err, refused) // it may exist, although this token may not create it
		}
		if err := p.store(ctx, more); err != nil {
			return p.done, err
		}
		news = append(news, more...)
	}
	if p.done.Files = len(news); len(news) > 0 {
		err = p.commit(ctx, news, message)
	}
	return p.done, err
}

func (p *push) local(path string) string { return filepath.Join(p.dir, filepath.FromSlash(path)) }

// list describes the files of the folder as the hub wants it, with their first bytes.
func (p *push) list() (files []map[string]any, err error) {
	dir := os.DirFS(p.dir)
	err = fs.WalkDir(dir, ".", func(path string, d fs.DirEntry, err error) error {
		switch hidden := path != "." && strings.HasPrefix(d.Name(), "."); {
		case err != nil:
			return err
		case hidden && d.IsDir():
			return fs.SkipDir
		case hidden || d.IsDir():
			return nil
		}
		file, err := dir.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		sample, err := io.ReadAll(io.LimitReader(file, 512))
		files = append(files, map[string]any{"path": path, "size": info.Size(), "sample": sample})
		return err
	})
	return files, err
}

// ask asks how the hub takes each file, and returns those that the repository lacks or has with other content.
func (p *push) ask(ctx context.Context, files []map[string]any) (news []upload, err error) {
	type taken struct {
		Path, UploadMode, OID string
		ShouldIgnore          bool
	}
	var answer struct{ Files []taken }
	if err := p.post(ctx, p.api("preupload"), jsonKind, map[string]any{"files": files}, &answer); err != nil {
		return nil, err
	}
	for _, file := range files {
		f := upload{path: file["path"].(string), size: file["size"].(int64)}
		i := slices.IndexFunc(answer.Files, func(t taken) bool { return t.Path == f.path })
		if i < 0 {
			return nil, fmt.Errorf("the hub does not say how it takes %s", f.path)
		}
		if f.large = answer.Files[i].UploadMode == "lfs" && f.size > 0; f.large {
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
		if f.oid != answer.Files[i].OID && !answer.Files[i].ShouldIgnore {
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
	var objects []map[string]any
	for _, f := range files {
		if f.large {
			objects = append(objects, map[string]any{"oid": f.oid, "size": f.size})
		}
	}
	if len(objects) == 0 {
		return nil
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
		if up := o.Actions.Upload; o.Error.Message != "" {
			err = fmt.Errorf("the hub answers: %s", o.Error.Message)
		} else if up.Href == "" || i < 0 {
			continue // the hub has it already
		} else if err = p.send(ctx, files[i], up); err == nil && o.Actions.Verify.Href != "" {
			err = p.post(ctx, o.Actions.Verify.Href, jsonKind, map[string]any{"oid": o.OID, "size": files[i].size}, nil)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", files[max(i, 0)].path, err)
		}
		p.done.Bytes += files[i].size
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
	addresses := map[int64]string{}
	for key, value := range to.Header {
		if n, err := strconv.ParseInt(key, 10, 64); err == nil { // there may be zeros before a number
			addresses[n] = fmt.Sprint(value)
		}
	}
	var parts []map[string]any
	for at := int64(0); at < f.size; at += size {
		n := at/size + 1
		tag, err := p.put(ctx, f, addresses[n], at, min(size, f.size-at))
		if err != nil {
			return fmt.Errorf("part %d: %w", n, err)
		}
		parts = append(parts, map[string]any{"partNumber": n, "etag": tag})
	}
	return p.post(ctx, to.Href, lfsKind, map[string]any{"oid": f.oid, "parts": parts}, nil)
}

// put sends a part of a file, and returns the storage's tag for it. Whoever knows the address may write there.
func (p *push) put(ctx context.Context, f upload, address string, at, size int64) (tag string, err error) {
	file, err := os.Open(p.local(f.path))
	if err != nil {
		return "", err
	}
	defer file.Close()
	err = try(ctx, func(ctx context.Context) error {
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

type writer func(b []byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// commit makes a commit of what is new.
func (p *push) commit(ctx context.Context, files []upload, message string) (err error) {
	var lines bytes.Buffer
	add := func(key string, value map[string]any) {
		err = cmp.Or(err, json.NewEncoder(&lines).Encode(map[string]any{"key": key, "value": value}))
	}
	add("header", map[string]any{"summary": message, "description": ""})
	for _, f := range files {
		if f.large {
			add("lfsFile", map[string]any{"path": f.path, "algo": "sha256", "oid": f.oid, "size": f.size})
			continue
		}
		text, rerr := os.ReadFile(p.local(f.path))
		err = cmp.Or(err, rerr)
		add("file", map[string]any{"path": f.path, "content": text, "encoding": "base64"})
	}
	if err != nil {
		return err
	}
	var answer struct{ CommitOid string }
	err = p.post(ctx, p.api("commit"), "application/x-ndjson", lines.Bytes(), &answer)
	p.done.Commit = answer.CommitOid
	return err
}

func (p *push) api(what string) string {
	return p.hub + "/api/models/" + p.repo + "/" + what + "/" + newest
}

// post posts JSON, or lines of it. The token goes to the hub only, whatever addresses it hands out.
func (p *push) post(ctx context.Context, address, kind string, body, reply any) (err error) {
	text, ok := body.([]byte)
	if !ok {
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	return try(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
		if err != nil {
			return err
		}
		request.Header = http.Header{"Content-Type": {kind}}
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

// refusal is an unsuccessful response.
type refusal struct {
	error
	code int
}

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
		if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden {
			said += "; to fix: set HF_TOKEN to a token that may write there"
		}
		return nil, refusal{fmt.Errorf("%s %s: the server answers %s: %s", request.Method, request.URL.Path, answer.Status,
			said), answer.StatusCode}
	}
	if err == nil && reply != nil {
		err = json.Unmarshal(text, reply)
	}
	return answer.Header, err
}

// try calls do again after failures that may be temporary, with pauses of half a minute in all.
func try(ctx context.Context, do func(context.Context) error) error {
	for n := 0; ; n++ {
		err := do(ctx)
		refused, ok := errors.AsType[refusal](err)
		passes := !ok || refused.code == http.StatusTooManyRequests || refused.code >= http.StatusInternalServerError
		if err == nil || !passes || n == pushTries-1 || ctx.Err() != nil {
			return err
		}
		_ = env.Sleep(ctx, time.Second<<n) // a context that has ended ends the next try
	}
}
