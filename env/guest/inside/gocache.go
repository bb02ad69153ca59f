//go:build linux

package inside

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// goCache is a build cache for the go command (GOCACHEPROG, Go 1.24 and later) that reads from two directories and
// writes to one. A sandbox can thus use what the host has compiled without being able to change it: the host would
// execute code from a poisoned cache.
//
// Both directories have the layout of the go command's own cache: file "xx/ACTION-a" names an output, which is in
// "xx/OUTPUT-d".
type goCache struct {
	own, shared string
}

// cacheRequest and cacheResponse are the messages of the go command's protocol: a sequence of JSON values.
type cacheRequest struct {
	ID       int64
	Command  string
	ActionID []byte `json:",omitempty"`
	OutputID []byte `json:",omitempty"`
	BodySize int64  `json:",omitempty"`
}

type cacheResponse struct {
	ID            int64
	Err           string     `json:",omitempty"`
	KnownCommands []string   `json:",omitempty"`
	Miss          bool       `json:",omitempty"`
	OutputID      []byte     `json:",omitempty"`
	Size          int64      `json:",omitempty"`
	Time          *time.Time `json:",omitempty"`
	DiskPath      string     `json:",omitempty"`
}

// serveGoCache answers requests until the go command closes the stream or sends "close".
func serveGoCache(shared string, in io.Reader, out io.Writer) error {
	dir, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	c := goCache{own: filepath.Join(dir, "go-build"), shared: shared}
	answers := json.NewEncoder(out)
	if err := answers.Encode(cacheResponse{KnownCommands: []string{"get", "put", "close"}}); err != nil {
		return err
	}
	requests := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := requests.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(strings.TrimSpace(string(line))) == 0 {
			continue
		}
		var r cacheRequest
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("request: %w", err)
		}
		answer, err := c.answer(r, requests)
		if err != nil {
			answer = cacheResponse{Err: err.Error()}
		}
		answer.ID = r.ID
		if err := answers.Encode(answer); err != nil {
			return err
		}
		if r.Command == "close" {
			return nil
		}
	}
}

func (c goCache) answer(r cacheRequest, in *bufio.Reader) (cacheResponse, error) {
	switch r.Command {
	case "close":
		return cacheResponse{}, nil
	case "get":
		for _, dir := range []string{c.own, c.shared} {
			if found, ok := lookUp(dir, r.ActionID); ok {
				return found, nil
			}
		}
		return cacheResponse{Miss: true}, nil
	case "put":
		return c.put(r, in)
	}
	return cacheResponse{}, fmt.Errorf("unknown command %q", r.Command)
}

func entry(dir string, id []byte, suffix string) string {
	name := hex.EncodeToString(id)
	if len(name) < 2 {
		name = "00" + name
	}
	return filepath.Join(dir, name[:2], name+suffix)
}

// lookUp reads an action's entry. It is a miss if the output that the entry names does not exist.
func lookUp(dir string, action []byte) (cacheResponse, bool) {
	data, err := os.ReadFile(entry(dir, action, "-a"))
	if err != nil {
		return cacheResponse{}, false
	}
	f := strings.Fields(string(data)) // "v1", action, output, size, time in nanoseconds
	if len(f) != 5 || f[0] != "v1" || f[1] != hex.EncodeToString(action) {
		return cacheResponse{}, false
	}
	output, err := hex.DecodeString(f[2])
	if err != nil {
		return cacheResponse{}, false
	}
	size, sizeErr := strconv.ParseInt(f[3], 10, 64)
	nanos, timeErr := strconv.ParseInt(f[4], 10, 64)
	path := entry(dir, output, "-d")
	info, err := os.Stat(path)
	if err := errors.Join(sizeErr, timeErr, err); err != nil || info.Size() != size {
		return cacheResponse{}, false
	}
	made := time.Unix(0, nanos)
	return cacheResponse{OutputID: output, Size: size, Time: &made, DiskPath: path}, true
}

// put stores an output, which follows the request as a base64 JSON string, and then the entry that names it.
func (c goCache) put(r cacheRequest, in *bufio.Reader) (cacheResponse, error) {
	text := &io.LimitedReader{R: in}
	if r.BodySize > 0 {
		if _, err := in.ReadString('"'); err != nil {
			return cacheResponse{}, err
		}
		text.N = int64(base64.StdEncoding.EncodedLen(int(r.BodySize)))
		defer func() {
			text.N++ // the rest of the string, with its closing quotation mark
			_, _ = io.Copy(io.Discard, text)
		}()
	}
	path := entry(c.own, r.OutputID, "-d")
	n, err := replace(path, base64.NewDecoder(base64.StdEncoding, text))
	if err != nil {
		return cacheResponse{}, err
	}
	if n != r.BodySize {
		return cacheResponse{}, fmt.Errorf("%d bytes announced, but %d sent", r.BodySize, n)
	}
	line := fmt.Sprintf("v1 %x %x %20d %20d\n", r.ActionID, r.OutputID, n, time.Now().UnixNano())
	_, err = replace(entry(c.own, r.ActionID, "-a"), strings.NewReader(line))
	return cacheResponse{DiskPath: path}, err
}

// replace writes a file atomically.
func replace(path string, content io.Reader) (int64, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name()) // fails after the rename
	n, err := io.Copy(f, content)
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	return n, os.Rename(f.Name(), path)
}
