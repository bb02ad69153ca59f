package docker

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// buildContext is a folder with a Dockerfile, as it was when it was read.
type buildContext struct {
	folder string
	// entries are what the daemon gets, in the order of their names.
	entries []*tar.Header
	// bases are the base images that the Dockerfile names without variables.
	bases []string
	// key is a hash of the content: everything but times and owners.
	key string
}

// readBuildContext reads a folder. What its .dockerignore names is left out.
func readBuildContext(folder string) (*buildContext, error) {
	file, err := os.ReadFile(filepath.Join(folder, "Dockerfile"))
	if err != nil {
		return nil, err
	}
	r := &buildContext{folder: folder, bases: basesOf(string(file))}
	ignored, err := readIgnored(folder)
	if err != nil {
		return nil, err
	}
	if err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return r.add(path, d, ignored)
	}); err != nil {
		return nil, err
	}
	hash := sha256.New()
	for _, h := range r.entries {
		fmt.Fprintf(hash, "%q %c %o %q %d\n", h.Name, h.Typeflag, h.Mode, h.Linkname, h.Size)
		if err := r.content(hash, h); err != nil {
			return nil, err
		}
	}
	r.key = hex.EncodeToString(hash.Sum(nil)[:16])
	return r, nil
}

func readIgnored(folder string) (*patternmatcher.PatternMatcher, error) {
	const name = ".dockerignore"
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	patterns, err := ignorefile.ReadAll(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return matcher, nil
}

func (r *buildContext) add(path string, d fs.DirEntry, ignored *patternmatcher.PatternMatcher) error {
	name, err := filepath.Rel(r.folder, path)
	if err != nil || name == "." {
		return err
	}
	if name != "Dockerfile" {
		out, err := ignored.MatchesOrParentMatches(name)
		if err != nil {
			return err
		}
		if out && d.IsDir() && !ignored.Exclusions() {
			return fs.SkipDir
		}
		if out {
			return nil
		}
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	target := ""
	switch kind := info.Mode().Type(); kind {
	case 0, fs.ModeDir:
	case fs.ModeSymlink:
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	default:
		return nil // sockets and devices cannot be copied into an image
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = filepath.ToSlash(name), 0, 0, "", ""
	if d.IsDir() {
		h.Name += "/"
	}
	r.entries = append(r.entries, h)
	return nil
}

// content writes a regular file's bytes, exactly as many as in its header.
func (r *buildContext) content(w io.Writer, h *tar.Header) error {
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	f, err := os.Open(filepath.Join(r.folder, filepath.FromSlash(h.Name)))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.CopyN(w, f, h.Size); err != nil {
		return fmt.Errorf("%s changes while it is read: %w", h.Name, err)
	}
	return nil
}

// archive is the folder as a tar stream.
func (r *buildContext) archive(to io.Writer) error {
	w := tar.NewWriter(to)
	for _, h := range r.entries {
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if err := r.content(w, h); err != nil {
			return err
		}
	}
	return w.Close()
}

// basesOf finds the images that a Dockerfile starts from, and the one that reads it where it names such a frontend.
// Those that depend on arguments are left to the daemon.
func basesOf(dockerfile string) []string {
	var bases []string
	stages := map[string]bool{"scratch": true}
	frontend := regexp.MustCompile(`(?i)^#\s*syntax\s*=\s*(\S+)`)
	from := regexp.MustCompile(`(?i)^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?`)
	for line := range strings.Lines(dockerfile) {
		found := frontend.FindStringSubmatch(line)
		if found == nil {
			found = from.FindStringSubmatch(line)
		}
		if found == nil {
			continue
		}
		if ref := found[1]; !stages[strings.ToLower(ref)] && !strings.Contains(ref, "$") && !slices.Contains(bases, ref) {
			bases = append(bases, ref)
		}
		if len(found) > 2 && found[2] != "" {
			stages[strings.ToLower(found[2])] = true
		}
	}
	return bases
}
