package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// stallTimeout is how long a transfer may go without a byte.
const stallTimeout = time.Minute

// ErrDigest reports that a file's content is not what it is known to be.
var ErrDigest = errors.New("its content does not match its SHA-256 digest")

// Client fetches files by HTTP. Its zero value works.
type Client struct {
	// Token authorizes requests, but not where they are redirected to another host.
	Token string
	// Progress is called as a file arrives, with the path of its .part file and, in bytes, what is there and the size of
	// the whole, or 0 if that is not known; nil calls nothing.
	Progress func(path string, have, size int64)
}

// File is a file that is published at an address.
type File struct {
	URL string
	// SHA256 is the digest of its content in hex; empty if it is not known. Size is in bytes; 0 if it is not known.
	SHA256 string
	Size   int64
}

// Verify checks the content of a file on this machine, and returns its digest. If the content does not match the
// known digest, the error wraps [ErrDigest].
func (f File) Verify(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	got := hex.EncodeToString(sum.Sum(nil))
	if f.SHA256 != "" && got != f.SHA256 {
		return got, fmt.Errorf("%s: %w: its SHA-256 digest is %s, not %s", path, ErrDigest, got, f.SHA256)
	}
	return got, nil
}

// Fetch writes a file to path unless it is there already, and returns its SHA-256 digest in hex. The file appears
// whole and verified, or not at all. What had arrived when a transfer broke off stays in path.part, and if the digest
// is known, the next call continues there. If path has other content, the error wraps [ErrDigest].
func (c *Client) Fetch(ctx context.Context, f File, path string) (string, error) {
	if sum, err := f.Verify(path); !errors.Is(err, fs.ErrNotExist) {
		return sum, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	part := path + ".part"
	if err := c.complete(ctx, f, part); err != nil {
		return "", fmt.Errorf("fetch %s: %w", f.URL, err)
	}
	sum, err := f.Verify(part)
	if errors.Is(err, ErrDigest) {
		return sum, errors.Join(err, os.Remove(part))
	}
	return sum, errors.Join(err, os.Rename(part, path))
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// complete fetches what is missing of a partial file.
func (c *Client) complete(ctx context.Context, f File, part string) (err error) {
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Sync(), file.Close()) }()
	have := sizeOf(part)
	switch {
	case f.Size > 0 && have == f.Size:
		return nil
	case f.SHA256 == "" || f.Size > 0 && have > f.Size:
		have = 0 // nothing would show that the parts do not belong together
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stalled := time.AfterFunc(stallTimeout, cancel)
	defer stalled.Stop()
	answer, err := c.get(ctx, f.URL, have)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusPartialContent {
		have = 0
	}
	if err := file.Truncate(have); err != nil {
		return err
	}
	to := io.NewOffsetWriter(file, have)
	size := f.Size
	if size == 0 && answer.ContentLength > 0 {
		size = have + answer.ContentLength
	}
	for {
		n, err := io.CopyN(to, answer.Body, 1<<20)
		stalled.Reset(stallTimeout)
		have += n
		if c.Progress != nil {
			c.Progress(part, have, size)
		}
		switch {
		case errors.Is(err, io.EOF) && have >= size:
			return nil
		case err != nil:
			return fmt.Errorf("the transfer broke off after %d bytes; to go on, try again: %w", have, err)
		}
	}
}

// get returns a successful response: the whole content, or what follows the first have bytes.
func (c *Client) get(ctx context.Context, address string, have int64) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "identity") // the digest and the range are of the file itself
	if have > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	answer, err := c.do(request)
	if err != nil {
		return nil, err
	}
	switch answer.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
		return answer, nil
	case http.StatusUnauthorized, http.StatusForbidden:
		err = fmt.Errorf("the server answers %s: it may require a token (HF_TOKEN), or that you accept the conditions "+
			"on its page", answer.Status)
	default:
		err = fmt.Errorf("the server answers %s", answer.Status)
	}
	return nil, errors.Join(err, answer.Body.Close())
}

// do makes a request. Its errors leave out the address, which the caller names, or which is secret.
func (c *Client) do(request *http.Request) (*http.Response, error) {
	request.Header.Set("User-Agent", "deepswe")
	client := http.Client{CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if next.URL.Host != request.URL.Host || next.URL.Scheme != request.URL.Scheme {
			next.Header.Del("Authorization") // Go's own client keeps it for subdomains
		}
		if len(via) >= 10 {
			return errors.New("it redirects without end")
		}
		return nil
	}}
	answer, err := client.Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return answer, err
}
