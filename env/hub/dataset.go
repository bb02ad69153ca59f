package hub

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"deepswe/env/disk"
)

//go:embed datasets.yaml
var datasets []byte

// Dataset is a published dataset.
type Dataset struct {
	Name  string `yaml:"name"`
	About string `yaml:"about"`
	// Dataset is its name on the hub, Revision the commit to fetch, or empty for the newest.
	Dataset  string `yaml:"dataset"`
	Revision string `yaml:"revision"`
	// Files are patterns of the paths to fetch, SHA256 the digests of those that are known, by path.
	Files  []string          `yaml:"files"`
	SHA256 map[string]string `yaml:"sha256"`
	// Lacks is what its tasks need beyond these files; empty if nothing.
	Lacks string `yaml:"lacks"`
}

// Datasets returns all datasets that are known by name.
func Datasets() ([]Dataset, error) {
	var all []Dataset
	d := yaml.NewDecoder(bytes.NewReader(datasets))
	d.KnownFields(true)
	return all, d.Decode(&all)
}

// ErrNoHub reports that files of a dataset are not there, and that no hub is named.
var ErrNoHub = errors.New("its files are missing, and no hub is named")

// lockName is the file in a dataset's directory that says where it is from; its ending is not one of a record file's.
const lockName = "SOURCE.lock"

const newest = "main"

// Source says where the files of a dataset's directory are from, and what they contain.
type Source struct {
	Version int    `json:"version"`
	Dataset string `json:"dataset"`
	// Hub and Revision are empty if the files were brought by hand.
	Hub      string `json:"hub,omitempty"`
	Revision string `json:"revision,omitempty"`
	Files    []Kept `json:"files"`
}

// Kept is a file of a Source.
type Kept struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Bring makes a directory hold the dataset's files, and returns where they are from. It checks files that are there
// by their known digests, and by those that were recorded in the directory when it was first complete. It fetches
// missing ones from the hub, at the recorded revision or else the dataset's own. Without a hub, it records files that
// were brought by hand as they are.
func (d Dataset) Bring(ctx context.Context, c *Client, hub, dir string) (s Source, err error) {
	if hub = strings.TrimRight(hub, "/"); hub != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return s, err
		}
		lock, lerr := disk.TryLock(filepath.Join(dir, "LOCK"))
		if lerr != nil {
			return s, fmt.Errorf("%s is %w", dir, lerr)
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
	}
	err = disk.ReadJSON(filepath.Join(dir, lockName), &s)
	recorded := err == nil
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return s, err
	case recorded && s.Dataset != d.Dataset:
		return s, fmt.Errorf("%s holds the dataset %s", dir, s.Dataset)
	case !recorded && hub == "":
		s, err = d.byHand(dir)
	case !recorded:
		s, err = d.list(ctx, c, hub)
	}
	if err != nil {
		return s, err
	}
	for i := range s.Files {
		if err := d.keep(ctx, c, hub, dir, s.Revision, &s.Files[i]); err != nil {
			return s, err
		}
	}
	if recorded {
		return s, nil
	}
	return s, disk.WriteJSON(filepath.Join(dir, lockName), s)
}

// keep verifies a file, after fetching it if it is missing and a hub is named, and sets its digest and size.
func (d Dataset) keep(ctx context.Context, c *Client, hub, dir, revision string, f *Kept) error {
	if !filepath.IsLocal(f.Path) {
		return fmt.Errorf("%q is not a path below a directory", f.Path)
	}
	known := ""
	if revision == "" || revision == d.Revision {
		known = d.SHA256[f.Path]
	}
	if known != "" && f.SHA256 != "" && f.SHA256 != known {
		return fmt.Errorf("%s: %w: of this revision, the SHA-256 digest is %s, not %s", f.Path, ErrDigest, known, f.SHA256)
	}
	file := File{URL: d.address(hub, revision, f.Path), SHA256: cmp.Or(known, f.SHA256), Size: f.Size}
	target := filepath.Join(dir, filepath.FromSlash(f.Path))
	var err error
	if hub == "" {
		f.SHA256, err = file.Verify(target)
	} else {
		f.SHA256, err = c.Fetch(ctx, file, target)
	}
	if errors.Is(err, fs.ErrNotExist) && hub == "" {
		err = fmt.Errorf("%w: %s", ErrNoHub, f.Path)
	}
	f.Size = sizeOf(target)
	return err
}

func (d Dataset) address(hub, revision, name string) string {
	return hub + "/datasets/" + d.Dataset + "/resolve/" + url.PathEscape(cmp.Or(revision, d.Revision, newest)) + "/" +
		(&url.URL{Path: name}).EscapedPath()
}

// byHand describes the files that somebody has put into the directory.
func (d Dataset) byHand(dir string) (Source, error) {
	s := Source{Version: 1, Dataset: d.Dataset}
	for _, pattern := range d.Files {
		found, err := fs.Glob(os.DirFS(dir), pattern)
		if err != nil {
			return s, err
		}
		for _, name := range found {
			s.Files = append(s.Files, Kept{Path: name})
		}
	}
	if len(s.Files) == 0 {
		return s, fmt.Errorf("%w: %s", ErrNoHub, strings.Join(d.Files, ", "))
	}
	return s, nil
}

// list asks the hub which files the revision has.
func (d Dataset) list(ctx context.Context, c *Client, hub string) (Source, error) {
	s := Source{Version: 1, Dataset: d.Dataset, Hub: hub}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	address := hub + "/api/datasets/" + d.Dataset + "/revision/" + url.PathEscape(cmp.Or(d.Revision, newest)) +
		"?blobs=true"
	answer, err := c.get(ctx, address, 0)
	if err != nil {
		return s, fmt.Errorf("list the files of %s: %w", d.Dataset, err)
	}
	defer answer.Body.Close()
	var listed struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
			Size int64  `json:"size"`
			LFS  struct {
				SHA256 string `json:"sha256"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	const most = 64 << 20
	if err := json.NewDecoder(io.LimitReader(answer.Body, most)).Decode(&listed); err != nil {
		return s, fmt.Errorf("list the files of %s: %w", d.Dataset, err)
	}
	s.Revision = cmp.Or(d.Revision, listed.SHA)
	for _, f := range listed.Siblings {
		if slices.ContainsFunc(d.Files, func(pattern string) bool {
			ok, _ := path.Match(pattern, f.Name) // the patterns are valid
			return ok
		}) {
			s.Files = append(s.Files, Kept{Path: f.Name, Size: f.Size, SHA256: f.LFS.SHA256})
		}
	}
	if len(s.Files) == 0 {
		return s, fmt.Errorf("%s has no %s at revision %s", d.Dataset, strings.Join(d.Files, ", "), s.Revision)
	}
	return s, nil
}
