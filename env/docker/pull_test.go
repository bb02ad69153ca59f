package docker

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"deepswe/env"
)

// hub serves images of one layer. It implements as much of the registry protocol as a pull needs.
type hub struct {
	*httptest.Server

	mu        sync.Mutex
	blobs     map[string][]byte
	manifests map[string][]byte // by "name:tag" and "name@digest"
	failing   int               // how many more requests for manifests are refused
	status    int               // with this status
	layers    int               // the number of layers that were downloaded
}

const manifestType = "application/vnd.docker.distribution.manifest.v2+json"

func newHub(t *testing.T) *hub {
	r := &hub{blobs: map[string][]byte{}, manifests: map[string][]byte{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *hub) host() string { return strings.TrimPrefix(r.URL, "http://") }

func (r *hub) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := strings.TrimPrefix(q.URL.Path, "/v2/")
	if path == "" {
		return
	}
	if name, digest, ok := strings.Cut(path, "/blobs/"); ok && name != "" {
		if blob, ok := r.blobs[digest]; ok {
			if !bytes.HasPrefix(blob, []byte("{")) && q.Method == http.MethodGet {
				r.layers++
			}
			w.Header().Set("Docker-Content-Digest", digest)
			_, _ = w.Write(blob)
			return
		}
		http.NotFound(w, q)
		return
	}
	name, ref, _ := strings.Cut(path, "/manifests/")
	if r.failing > 0 {
		r.failing--
		code := map[int]string{http.StatusTooManyRequests: "TOOMANYREQUESTS",
			http.StatusUnauthorized: "UNAUTHORIZED"}[r.status]
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(r.status)
		fmt.Fprintf(w, `{"errors":[{"code":%q,"message":"not now"}]}`, code)
		return
	}
	manifest, ok := r.manifests[name+":"+ref]
	if !ok {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`)
		return
	}
	w.Header().Set("Content-Type", manifestType)
	w.Header().Set("Docker-Content-Digest", digest(manifest))
	_, _ = w.Write(manifest)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// put adds an image with one file of size random bytes, and returns its digest.
func (r *hub) put(t *testing.T, name, tag string, size int) string {
	t.Helper()
	content := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(size), byte(len(name))})
	_, _ = random.Read(content)
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	if err := errors.Join(
		tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "content-" + name[strings.LastIndex(name, "/")+1:],
			Mode: 0o644, Size: int64(size)}),
		func() error { _, err := tw.Write(content); return err }(), tw.Close(),
	); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Cmd": []string{"/none"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer.Bytes())}},
	})
	if err != nil {
		t.Fatal(err)
	}
	blob := func(kind string, b []byte) map[string]any {
		return map[string]any{"mediaType": kind, "size": len(b), "digest": digest(b)}
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": blob("application/vnd.docker.container.image.v1+json", config),
		"layers": []any{blob("application/vnd.docker.image.rootfs.diff.tar", layer.Bytes())},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blobs[digest(layer.Bytes())], r.blobs[digest(config)] = layer.Bytes(), config
	r.manifests[name+":"+tag], r.manifests[name+":"+digest(manifest)] = manifest, manifest
	return digest(manifest)
}

// unpull removes an image at the end of a test.
func unpull(t *testing.T, p *Provider, ref string) {
	t.Cleanup(func() {
		cli := p.daemons[0].cli
		ctx := p.life
		if _, err := cli.ImageRemove(ctx, ref, client.ImageRemoveOptions{PruneChildren: true}); err != nil &&
			!errdefs.IsNotFound(err) && ctx.Err() == nil {
			t.Errorf("removing %s: %v", ref, err)
		}
	})
}

func TestPull(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var reports []env.Progress
	p := provider(t, Options{Progress: func(r env.Progress) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, r)
	}})
	r := newHub(t)
	r.put(t, "team/task", "v1", 1<<20)
	ref := r.host() + "/team/task:v1"
	unpull(t, p, ref)
	r.failing, r.status = 2, http.StatusServiceUnavailable
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := p.Prefetch(t.Context(), env.Spec{Image: ref}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if r.layers != 1 {
		t.Errorf("the image was pulled %d times for 8 callers, want once", r.layers)
	}
	last := reports[len(reports)-1]
	if !last.Done || last.Err != nil || last.Image != ref || last.Layers != 1 || last.Ready != 1 {
		t.Errorf("the last report is %+v", last)
	}
}

func TestPullFails(t *testing.T) {
	t.Parallel()
	p := hasty(provider(t, Options{}))
	r := newHub(t)
	r.put(t, "team/limited", "v1", 10)
	for name, c := range map[string]struct {
		ref     string
		status  int
		noImage bool
		want    string
	}{
		"no such tag":      {ref: r.host() + "/team/task:none", noImage: true, want: "check the name"},
		"no such registry": {ref: "127.0.0.1:1/team/task:v1", want: "check the network"},
		"by ID":            {ref: "sha256:" + strings.Repeat("0", 64), noImage: true, want: "docker images"},
		"rate limit":       {ref: r.host() + "/team/limited:v1", status: http.StatusTooManyRequests, want: "limit"},
		"login": {ref: r.host() + "/team/limited:v1", status: http.StatusUnauthorized, noImage: true,
			want: "docker login"},
	} {
		t.Run(name, func(t *testing.T) {
			r.mu.Lock()
			r.failing, r.status = 0, c.status
			if c.status != 0 {
				r.failing = 100
			}
			r.mu.Unlock()
			_, err := p.Start(t.Context(), env.Spec{Image: c.ref})
			if !errors.Is(err, env.ErrInfrastructure) || errors.Is(err, env.ErrNoImage) != c.noImage {
				t.Errorf("Start: %v; want env.ErrInfrastructure, and env.ErrNoImage: %v", err, c.noImage)
			}
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error does not say what to do (%q): %v", c.want, err)
			}
		})
	}
}

func TestMirror(t *testing.T) {
	t.Parallel()
	r := newHub(t)
	sum := r.put(t, "cache/team/mirrored", "v1", 100)
	p := provider(t, Options{Mirror: "http://" + r.host() + "/cache/"})
	for name, ref := range map[string]string{"by tag": "team/mirrored:v1", "by digest": "team/mirrored@" + sum} {
		t.Run(name, func(t *testing.T) {
			if err := p.Prefetch(t.Context(), env.Spec{Image: ref}); err != nil {
				t.Fatal(err)
			}
			img, err := p.daemons[0].images.get(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			unpull(t, p, img.ref)
		})
	}
}

// TestImageBudget pulls images beyond the budget. Those used longest ago are removed, but never a user's own image.
func TestImageBudget(t *testing.T) {
	r := newHub(t)
	p := provider(t, Options{})
	d := p.daemons[0]
	usage, err := d.cli.DiskUsage(t.Context(), client.DiskUsageOptions{Images: true})
	if err != nil {
		t.Fatal(err)
	}
	p.options.ImageBudget = usage.Images.TotalSize + 25<<20
	var refs []string
	for i := range 4 {
		name := fmt.Sprint("team/big", i)
		r.put(t, name, "v1", 10<<20+i)
		refs = append(refs, r.host()+"/"+name+":v1")
		unpull(t, p, refs[i])
		if i == 3 {
			// The oldest is used again, so that another one is removed.
			d.images.own.mu.Lock()
			clear(d.images.own.touched)
			d.images.own.mu.Unlock()
			if err := p.Prefetch(t.Context(), env.Spec{Image: refs[1]}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Prefetch(t.Context(), env.Spec{Image: refs[i]}); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []bool{false, true, false, true} {
		_, err := d.cli.ImageInspect(t.Context(), refs[i])
		if there := err == nil; there != want {
			t.Errorf("image %d is there: %v, want %v", i, there, want)
		}
	}
	needImage(t, p, busybox)
}
