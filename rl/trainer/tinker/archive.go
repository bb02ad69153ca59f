package tinker

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/env/disk"
)

// The files of an adapter, as vLLM and PEFT read them.
const (
	adapterConfig  = "adapter_config.json"
	adapterWeights = "adapter_model.safetensors"
)

// Limits for archives. An adapter of rank 64 on all layers of a 32B model has 2 GB.
const (
	maxAdapter      = 64 << 30
	maxAdapterFiles = 64
	maxPadding      = 1 << 20 // after the last file
	maxHeader       = 64 << 20
	downloadTimeout = time.Hour
)

// ErrArchive reports an archive that does not contain a usable adapter.
var ErrArchive = errors.New("the adapter's archive cannot be used")

// Adapter downloads the adapter that was saved for sampling under an address, and unpacks it into a new directory. If
// it fails, there is no directory.
func (c *Client) Adapter(ctx context.Context, address, dir string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "tinker" || u.Host == "" {
		return fmt.Errorf("download the adapter: %q is not the address of a checkpoint", address)
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	where := "training_runs/" + u.Host + "/checkpoints/" + path.Base(u.Path) + "/archive"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.JoinPath("api/v1", where).String(), nil)
	if err != nil {
		return err
	}
	if c.key != "" {
		r.Header.Set("X-API-Key", c.key)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return &Error{Operation: "archive", Kind: errUnavailable, Detail: unwrapURL(err).Error()}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // the status says enough
		return c.refused("archive", answer{status: resp.StatusCode, body: text})
	}
	err = UnpackAdapter(resp.Body, dir)
	if errors.Is(err, ErrArchive) {
		return fmt.Errorf("%w; to fix: look at what %s has saved, or at a proxy before it", err, c.base.Redacted())
	}
	return err
}

// downloads is how often to try to download an archive completely.
const downloads = 3

// downloadAdapter is Adapter, and tries again where that can help.
func (c *Client) downloadAdapter(ctx context.Context, address, dir string) error {
	t := c.newTries()
	for n := 1; ; n++ {
		err := c.Adapter(ctx, address, dir)
		again := errors.Is(err, errUnavailable) || errors.Is(err, errRateLimited) || errors.Is(err, errServer) ||
			errors.Is(err, ErrArchive) && n < downloads
		if !again || ctx.Err() != nil || !t.again(ctx, 0) {
			return err
		}
		c.log.Warn("the adapter is downloaded again", "error", err)
	}
}

// UnpackAdapter unpacks an adapter's archive into a new directory. The archive may contain regular files only, without
// directories in their names. Otherwise, the error wraps ErrArchive and nothing is left behind.
func UnpackAdapter(in io.Reader, dir string) (err error) {
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("unpack the adapter: %s: %w", dir, os.ErrExist)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("unpack the adapter: %w", err)
	}
	scratch, err := disk.MakeScratch(filepath.Dir(dir), "adapter")
	if err != nil {
		return fmt.Errorf("unpack the adapter: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("unpack the adapter: %w", err), disk.RemoveScratch(scratch))
		}
	}()
	if err := extract(in, scratch); err != nil {
		return err
	}
	if err := completeConfig(scratch); err != nil {
		return err
	}
	// The server may run as another user.
	if err := os.Chmod(scratch, 0o755); err != nil {
		return err
	}
	return os.Rename(scratch, dir)
}

// extract writes the archive's files into a directory. It reads the archive to the end, where its checksum is.
func extract(in io.Reader, dir string) error {
	zipped, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("%w: it is not gzip: %w", ErrArchive, err)
	}
	left := int64(maxAdapter)
	archive := tar.NewReader(zipped)
	var seen []string
	for first := true; ; first = false {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: it is truncated or damaged: %w", ErrArchive, err)
		}
		if h.Typeflag == tar.TypeDir && strings.Trim(h.Name, "./") == "" && first {
			continue // the directory itself
		}
		name := strings.TrimPrefix(h.Name, "./")
		switch {
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("%w: %q is not a file but a link, a directory or a device", ErrArchive, h.Name)
		case name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "\\\x00"):
			return fmt.Errorf("%w: %q is outside its directory", ErrArchive, h.Name)
		case slices.Contains(seen, name):
			return fmt.Errorf("%w: it has %q twice", ErrArchive, name)
		case len(seen) == maxAdapterFiles || h.Size > left:
			return fmt.Errorf("%w: it is larger than %d files and %d GiB", ErrArchive, maxAdapterFiles, maxAdapter>>30)
		}
		left -= h.Size
		seen = append(seen, name)
		if err := writeFile(filepath.Join(dir, name), archive); err != nil {
			return err
		}
	}
	switch n, err := io.Copy(io.Discard, io.LimitReader(zipped, maxPadding+1)); {
	case err != nil:
		return fmt.Errorf("%w: it is truncated or damaged: %w", ErrArchive, err)
	case n > maxPadding:
		return fmt.Errorf("%w: there is data after its last file", ErrArchive)
	}
	for _, name := range []string{adapterConfig, adapterWeights} {
		if !slices.Contains(seen, name) {
			return fmt.Errorf("%w: it has no %s", ErrArchive, name)
		}
	}
	return nil
}

// torn marks errors of reading the archive, to distinguish them from errors of writing to the disk.
type torn struct{ in io.Reader }

func (t torn) Read(p []byte) (int, error) {
	n, err := t.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: it is truncated or damaged: %w", ErrArchive, err)
	}
	return n, err
}

func writeFile(name string, in io.Reader) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, torn{in})
	return errors.Join(err, f.Close())
}

// completeConfig checks the weights. If the configuration does not name the modules that they belong to, which vLLM
// needs, it adds them.
func completeConfig(dir string) error {
	modules, err := adapterModules(filepath.Join(dir, adapterWeights))
	if err != nil {
		return err
	}
	var config map[string]json.RawMessage
	data, err := os.ReadFile(filepath.Join(dir, adapterConfig))
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrArchive, adapterConfig, err)
	}
	if named, ok := config["target_modules"]; ok && !bytes.Equal(bytes.TrimSpace(named), []byte("null")) {
		return nil
	}
	if config["target_modules"], err = json.Marshal(modules); err != nil {
		return err
	}
	return disk.WriteJSON(filepath.Join(dir, adapterConfig), config)
}

// adapterModules reads the names of the modules from the header of a safetensors file, and checks that the file is
// complete.
func adapterModules(name string) ([]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var size uint64
	if err := binary.Read(f, binary.LittleEndian, &size); err != nil || size > maxHeader || int64(size) > info.Size()-8 {
		return nil, fmt.Errorf("%w: %s has no header", ErrArchive, adapterWeights)
	}
	var header map[string]struct {
		Offsets [2]int64 `json:"data_offsets"`
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(f, text); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &header); err != nil {
		return nil, fmt.Errorf("%w: the header of %s: %w", ErrArchive, adapterWeights, err)
	}
	var modules []string
	for tensor, t := range header {
		if t.Offsets[1] > info.Size()-8-int64(size) {
			return nil, fmt.Errorf("%w: %s is cut off: %s is beyond its end", ErrArchive, adapterWeights, tensor)
		}
		before, _, ok := strings.Cut(tensor, ".lora_")
		if module := before[strings.LastIndex(before, ".")+1:]; ok && !slices.Contains(modules, module) {
			modules = append(modules, module)
		}
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("%w: %s has no tensors of an adapter", ErrArchive, adapterWeights)
	}
	slices.Sort(modules)
	return modules, nil
}
