package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	requestTimeout = 30 * time.Second
	// mostReply is the most that is read of a reply, and mostError the most of one that is shown.
	mostReply, mostError = 4 << 20, 500
)

// server is where metrics are posted as JSON.
type server struct {
	base   *url.URL
	header http.Header
}

// parseAddress reads a server's address. Its errors do not contain what may be a secret.
func parseAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("invalid address (for example http://127.0.0.1:7860)")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("invalid address %q (for example http://127.0.0.1:7860)", u.Scheme+"://"+u.Host)
	}
	u.Fragment = ""
	return u, nil
}

// post posts a body, and reads the reply into a value.
func (s server) post(ctx context.Context, path string, body, reply any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	endpoint := s.base.JoinPath(path).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header = s.header.Clone()
	request.Header.Set("Content-Type", "application/json")
	// A redirect would carry the token to another server.
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := http.Client{Timeout: requestTimeout, CheckRedirect: refuse}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, mostReply))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", endpoint, response.Status, text[:min(len(text), mostError)])
	}
	if err := json.Unmarshal(text, reply); err != nil {
		return fmt.Errorf("%s is not a server for metrics: %w", endpoint, err)
	}
	return nil
}
