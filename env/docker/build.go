package docker

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	builder "github.com/moby/moby/api/types/build"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"google.golang.org/protobuf/encoding/protowire"

	"deepswe/env"
	"deepswe/env/wire"
)

// builtImages is the repository name of images that were built from a folder.
const builtImages = "deepswe-built"

// built returns the reference of the image that a folder's Dockerfile produces. It only reads the folder; the image
// is built on a daemon when a sandbox is started from it. A folder is read once in the life of the provider, so
// that all attempts at a task start from the same image.
func (p *Provider) built(folder string, how env.Recipe) (ref string, err error) {
	if folder, err = filepath.Abs(folder); err != nil {
		return "", fmt.Errorf("build: %w", err)
	}
	how.File = cmp.Or(how.File, "Dockerfile")
	named := fmt.Sprintf("%s %q", folder, how)
	r := p.buildContext(named)
	if r == nil {
		if r, err = readBuildContext(folder, how); err != nil {
			return "", fmt.Errorf("build %s: %w", folder, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if earlier := p.builds[named]; earlier != nil {
		r = earlier // a concurrent caller was first
	}
	ref = builtImages + ":" + r.key
	p.builds[named], p.builds[ref] = r, r
	return ref, nil
}

func (p *Provider) buildContext(ref string) *buildContext {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.builds[ref]
}

// buildTimeout limits the building of one image.
const buildTimeout = time.Hour

// build builds an image. It pulls the base images first, with the mirror, credentials and retries of pull.
func (m *images) build(ctx context.Context, ref string, r *buildContext) (image, error) {
	late := fmt.Errorf("build %s: not finished after %v", r.folder, buildTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, buildTimeout, late)
	defer cancel()
	var missing error
	for _, base := range r.bases {
		// Some lines only look like FROM, so this error counts only if the build fails too.
		if _, err := m.get(ctx, base); err != nil {
			missing = errors.Join(missing, err)
		}
	}
	if err := acquire(ctx, m.pulls); err != nil {
		return image{}, err
	}
	defer func() { <-m.pulls }()
	if img, err := m.inspect(ctx, ref); err == nil || !errdefs.IsNotFound(err) {
		return img, err // another process has built it meanwhile
	}
	m.d.p.log.Info("building an image", "image", ref, "folder", r.folder, "host", m.d.host)
	progress := m.progress(env.Building, r.folder)
	progress.report()
	err := m.buildOnce(ctx, ref, r)
	progress.finish(err)
	if err != nil {
		return image{}, errors.Join(err, missing)
	}
	img, err := m.inspect(ctx, ref)
	if err != nil {
		return image{}, err
	}
	m.own.pulled(ctx, img)
	return img, nil
}

// buildOnce builds with BuildKit, which every daemon since 19.03 supports.
func (m *images) buildOnce(ctx context.Context, ref string, r *buildContext) error {
	read, write := io.Pipe()
	var sending sync.WaitGroup
	sending.Go(func() { write.CloseWithError(r.archive(write)) })
	defer sending.Wait()
	defer read.Close()
	response, err := m.d.cli.ImageBuild(ctx, read, client.ImageBuildOptions{
		Tags: []string{ref}, Dockerfile: r.how.File, Target: r.how.Target, BuildArgs: r.arguments(),
		Version: builder.BuilderBuildKit, Remove: true, ForceRemove: true,
		Labels: map[string]string{labelBuilt: r.key},
	})
	if err != nil {
		return fmt.Errorf("build %s: %w", r.folder, err)
	}
	defer response.Body.Close()
	return follow(r.folder, response.Body)
}

// follow reads the messages of a build until it ends.
func follow(folder string, stream io.Reader) error {
	messages := json.NewDecoder(stream)
	var said tailBuffer
	for {
		var m jsonstream.Message
		err := messages.Decode(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("build %s: %w", folder, err)
		}
		_, _ = said.Write([]byte(m.Stream))
		if m.ID == "moby.buildkit.trace" && m.Aux != nil {
			var status []byte
			if json.Unmarshal(*m.Aux, &status) == nil {
				_, _ = said.Write(logged(status))
			}
		}
		if m.Error != nil {
			return &BuildError{Folder: folder, Reason: m.Error.Message, Output: said.String()}
		}
	}
}

// logged returns the output in a status message of BuildKit (in moby.buildkit.v1.StatusResponse, field 3 contains
// the logs, whose field 4 is the text). It skips what it cannot parse, because the output is only shown to people.
func logged(status []byte) []byte {
	var out []byte
	_ = wire.Each(status, func(field protowire.Number, entry []byte, _ uint64) error {
		if field != 3 {
			return nil
		}
		_ = wire.Each(entry, func(field protowire.Number, text []byte, _ uint64) error {
			if field == 4 {
				out = append(out, text...)
			}
			return nil
		})
		return nil
	})
	return out
}

// BuildError reports that a Dockerfile cannot be built. The task is usually at fault, so retrying seldom helps.
type BuildError struct {
	Folder string
	Reason string
	// Output is the end of the output of the build's commands.
	Output string
}

func (e *BuildError) Error() string {
	text := fmt.Sprintf("build %s: %s", e.Folder, e.Reason)
	if output := strings.TrimSpace(e.Output); output != "" {
		text += "\n" + output
	}
	return text
}

// buildContext is a folder with a Dockerfile, as it was when it was read.
type buildContext struct {
	folder string
	how    env.Recipe
	// entries are sent to the daemon, sorted by name.
	entries []*tar.Header
	// bases are the base images that the Dockerfile names without variables.
	bases []string
	// key is a hash of the content, without times and owners.
	key string
}

// readBuildContext reads a folder, except what its .dockerignore excludes.
func readBuildContext(folder string, how env.Recipe) (*buildContext, error) {
	file, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(how.File)))
	if err != nil {
		return nil, err
	}
	r := &buildContext{folder: folder, how: how, bases: basesOf(string(file))}
	ignored, err := readIgnored(folder)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return r.add(path, d, ignored)
	})
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	if how.File != "Dockerfile" || how.Target != "" || len(how.Args) > 0 {
		fmt.Fprintf(hash, "%q %q %q\n", how.File, how.Target, how.Args)
	}
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
	var matcher *patternmatcher.PatternMatcher
	patterns, err := ignorefile.ReadAll(bytes.NewReader(data))
	if err == nil {
		matcher, err = patternmatcher.New(patterns)
	}
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
	if name = filepath.ToSlash(name); slices.Contains(r.how.Without, name) {
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	if name != r.how.File {
		switch out, err := ignored.MatchesOrParentMatches(name); {
		case err != nil:
			return err
		case out && d.IsDir() && !ignored.Exclusions():
			return fs.SkipDir
		case out:
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
		return nil // sockets and devices cannot be part of an image
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

// arguments returns the build arguments in the form that the daemon takes.
func (r *buildContext) arguments() map[string]*string {
	all := map[string]*string{}
	for key, value := range r.how.Args {
		all[key] = &value
	}
	return all
}

// content writes exactly as many bytes of a regular file as its header says.
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

// archive writes the folder as a tar stream.
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

// basesOf returns the images that a Dockerfile starts from, and its frontend, if it names one. Images whose names
// depend on build arguments are left to the daemon.
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
