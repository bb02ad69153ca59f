package tinker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"deepswe/env/disk"
)

// ErrSampler reports a vLLM server that has not loaded an adapter.
var ErrSampler = errors.New("a sampler has not loaded the adapter")

// loadTimeout limits loading an adapter of up to 2 GB from a file system that may be slow.
const loadTimeout = 10 * time.Minute

// vllm is one server.
type vllm struct {
	url, key string
	http     *http.Client
}

func newVLLM(address, key string) (*vllm, error) {
	u, err := url.Parse(strings.TrimRight(address, "/"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("invalid URL of a sampler (for example http://127.0.0.1:8000/v1)")
	}
	if u.Path == "" {
		u.Path = "/v1"
	}
	s := &vllm{url: u.String(), key: key, http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return s, nil
}

// load loads an adapter under a name. It waits for a server that does not answer.
func (s *vllm) load(ctx context.Context, t *tries, name, dir string) error {
	status, text, err := s.ask(ctx, t, http.MethodPost, "load_lora_adapter", map[string]string{
		"lora_name": name, "lora_path": dir})
	switch {
	case err != nil:
		return err
	case status < 300, strings.Contains(text, "already been loaded"): // the response to an earlier try was lost
		return nil
	}
	return fmt.Errorf("%w: %s: %.300s%s", ErrSampler, s.url, text, advice(status, text, dir))
}

// ask repeats a request until the server answers or the time for tries is over.
func (s *vllm) ask(ctx context.Context, t *tries, method, path string, in any) (status int, text string, err error) {
	for {
		status, text, err = s.do(ctx, method, path, in)
		switch {
		case ctx.Err() != nil:
			return 0, "", ctx.Err()
		case err == nil && status < 500:
			return status, text, nil
		case t.again(ctx, 0):
			continue
		case err == nil:
			err = fmt.Errorf("status %d: %.300s", status, text)
		}
		return status, text, fmt.Errorf("the sampler %s does not answer: %w", s.url, err)
	}
}

// advice returns how to fix what a server refuses.
func advice(status int, text, dir string) string {
	switch {
	case strings.Contains(text, "No adapter found"):
		return fmt.Sprintf("; to fix: set trainer.adapters to a directory that the sampler has under the same path (it does "+
			"not find %s)", dir)
	case strings.Contains(text, "max_lora_rank"):
		return "; to fix: start vLLM with --max-lora-rank of at least trainer.rank"
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return "; to fix: start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
	}
	return ""
}

// unload unloads an adapter, if the server has it.
func (s *vllm) unload(ctx context.Context, name string) error {
	status, text, err := s.do(ctx, http.MethodPost, "unload_lora_adapter", map[string]string{"lora_name": name})
	if err == nil && status >= 300 && status != http.StatusNotFound {
		err = fmt.Errorf("%s: unload %s: %.300s", s.url, name, text)
	}
	return err
}

// loaded returns the names of the server's adapters that are below a directory.
func (s *vllm) loaded(ctx context.Context, t *tries, dir string) ([]string, error) {
	status, text, err := s.ask(ctx, t, http.MethodGet, "models", nil)
	if err == nil && status >= 300 {
		err = fmt.Errorf("status %d: %.300s", status, text)
	}
	var reply struct {
		Data []struct{ ID, Root, Parent string } `json:"data"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &reply)
	}
	if err != nil {
		return nil, fmt.Errorf("sampler %s: %w; to fix: give the address of vLLM's OpenAI endpoint", s.url, err)
	}
	var names []string
	for _, m := range reply.Data {
		if m.Parent != "" && filepath.Dir(m.Root) == dir {
			names = append(names, m.ID)
		}
	}
	return names, nil
}

// do sends one request to a path below the endpoint's address.
func (s *vllm) do(ctx context.Context, method, path string, in any) (status int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var body io.Reader
	if in != nil {
		data, err := disk.MarshalJSON(in)
		if err != nil {
			return 0, "", err
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.url+"/"+path, body)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	if s.key != "" {
		r.Header.Set("Authorization", "Bearer "+s.key)
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return 0, "", unwrapURL(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(data), err
}
