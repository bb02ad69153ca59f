package tinker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/env/disk"
)

// ErrSampler reports a server that answers, and refuses what a sampler must do.
var ErrSampler = errors.New("a sampler refuses")

// errUnanswered reports a server that cannot be reached or gives no answer.
var errUnanswered = errors.New("does not answer")

// loadTimeout limits loading an adapter of up to 2 GB from a file system that may be slow.
const loadTimeout = 10 * time.Minute

// unloadTimeout limits unloading an adapter.
const unloadTimeout = 10 * time.Second

// loadPatience is how long to repeat loading on a server that is busy or fails, before the others go on without it.
const loadPatience = 10 * time.Second

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
	u.Path = cmp.Or(u.Path, "/v1")
	s := &vllm{url: u.String(), key: key, http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return s, nil
}

// load loads an adapter under a name. A server that fails is asked again for a short time.
func (s *vllm) load(ctx context.Context, t *tries, name, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	t.patience = min(t.patience, loadPatience)
	for silent := 0; ; {
		status, text, err := s.do(ctx, http.MethodPost, s.url+"/load_lora_adapter", map[string]string{
			"lora_name": name, "lora_path": dir})
		switch {
		case err != nil:
			silent++
			err = fmt.Errorf("%w: the sampler %s %w: %w", agent.ErrModelUnavailable, s.url, errUnanswered, err)
		case status < 300, strings.Contains(text, "already been loaded"): // the response to an earlier try was lost
			return nil
		case status < 500 && status != http.StatusTooManyRequests:
			return fmt.Errorf("%w: %s: %.300s%s", ErrSampler, s.url, text, advice(status, text, dir))
		default:
			err = fmt.Errorf("%w: the sampler %s: status %d: %.300s", agent.ErrModelUnavailable, s.url, status, text)
		}
		if silent == 2 || ctx.Err() != nil || !t.again(ctx, 0) {
			return err
		}
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
	ctx, cancel := context.WithTimeout(ctx, unloadTimeout)
	defer cancel()
	status, text, err := s.do(ctx, http.MethodPost, s.url+"/unload_lora_adapter", map[string]string{"lora_name": name})
	if err == nil && status >= 300 && status != http.StatusNotFound {
		err = fmt.Errorf("%s: unload %s: %.300s", s.url, name, text)
	}
	return err
}

// loaded asks for the server's adapters: their directories by name.
func (s *vllm) loaded(ctx context.Context) (map[string]string, error) {
	status, text, err := s.do(ctx, http.MethodGet, s.url+"/models", nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the sampler %s %w: %w", agent.ErrModelUnavailable, s.url, errUnanswered, err)
	case status >= 500 || status == http.StatusTooManyRequests:
		return nil, fmt.Errorf("%w: the sampler %s: status %d: %.300s", agent.ErrModelUnavailable, s.url, status, text)
	case status >= 300:
		err = fmt.Errorf("status %d: %.300s", status, text)
	}
	var reply struct {
		Data []struct{ ID, Root, Parent string } `json:"data"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &reply)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w; to fix: give the address of vLLM's OpenAI endpoint", ErrSampler, s.url, err)
	}
	roots := map[string]string{}
	for _, m := range reply.Data {
		if m.Parent != "" {
			roots[m.ID] = m.Root
		}
	}
	return roots, nil
}

// counts returns the counters of the engine's work as a text to compare; empty if the server does not report them.
func (s *vllm) counts(ctx context.Context) string {
	status, text, err := s.do(ctx, http.MethodGet, strings.TrimSuffix(s.url, "/v1")+"/metrics", nil)
	if err != nil || status >= 300 {
		return ""
	}
	return llm.EngineCounts(text)
}

func (s *vllm) do(ctx context.Context, method, address string, in any) (status int, text string, err error) {
	var body io.Reader
	if in != nil {
		data, err := disk.MarshalJSON(in)
		if err != nil {
			return 0, "", err
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, address, body)
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
