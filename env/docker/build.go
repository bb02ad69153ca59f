package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	builder "github.com/moby/moby/api/types/build"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"
	"google.golang.org/protobuf/encoding/protowire"

	"deepswe/env"
)

// builtImages is the repository name of the images that were built from a folder.
const builtImages = "deepswe-built"

// built returns the reference of the image that a folder's Dockerfile makes. It only reads the folder: the image is
// built on the daemon that a sandbox is started on, where it does not exist yet. Like a reference, a folder keeps its
// meaning for as long as the provider lives, so that all attempts at a task start from the same image.
func (p *Provider) built(folder string) (ref string, err error) {
	if folder, err = filepath.Abs(folder); err != nil {
		return "", fmt.Errorf("build: %w", err)
	}
	r := p.buildContext(folder)
	if r == nil {
		if r, err = readBuildContext(folder); err != nil {
			return "", fmt.Errorf("build %s: %w", folder, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if earlier := p.builds[folder]; earlier != nil {
		r = earlier // of a caller that came at the same time
	}
	ref = builtImages + ":" + r.key
	p.builds[folder], p.builds[ref] = r, r
	return ref, nil
}

func (p *Provider) buildContext(ref string) *buildContext {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.builds[ref]
}

// obtain builds or pulls an image that the daemon does not have.
func (d *daemon) obtain(ctx context.Context, ref string) (image, error) {
	if r := d.p.buildContext(ref); r != nil {
		return d.build(ctx, ref, r)
	}
	return d.pull(ctx, ref)
}

// buildTimeout is the longest that building one image may take.
const buildTimeout = time.Hour

// build builds an image. Its base images are pulled first: pull knows mirrors, credentials and retries.
func (d *daemon) build(ctx context.Context, ref string, r *buildContext) (image, error) {
	late := fmt.Errorf("build %s: not finished after %v", r.folder, buildTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, buildTimeout, late)
	defer cancel()
	var missing error
	for _, base := range r.bases {
		// A line that looks like an instruction may be none, so only a build that fails makes this a failure.
		if _, err := d.image(ctx, base); err != nil {
			missing = errors.Join(missing, err)
		}
	}
	select {
	case d.pulls <- struct{}{}:
		defer func() { <-d.pulls }()
	case <-ctx.Done():
		return image{}, ctx.Err()
	}
	if img, err := d.inspectImage(ctx, ref); err == nil || !errdefs.IsNotFound(err) {
		return img, err // another process has built it meanwhile
	}
	d.p.log.Info("building an image", "image", ref, "folder", r.folder, "host", d.host)
	progress := d.progress(env.Building, r.folder)
	progress.report()
	err := d.buildOnce(ctx, ref, r)
	progress.finish(err)
	if err != nil {
		return image{}, errors.Join(err, missing)
	}
	img, err := d.inspectImage(ctx, ref)
	if err != nil {
		return image{}, err
	}
	d.pulled(ctx, img)
	return img, nil
}

// buildOnce builds with BuildKit, which every daemon since 19.03 has.
func (d *daemon) buildOnce(ctx context.Context, ref string, r *buildContext) error {
	read, write := io.Pipe()
	var sending sync.WaitGroup
	sending.Go(func() { write.CloseWithError(r.archive(write)) })
	defer sending.Wait()
	defer read.Close()
	response, err := d.cli.ImageBuild(ctx, read, client.ImageBuildOptions{
		Tags: []string{ref}, Version: builder.BuilderBuildKit, Remove: true, ForceRemove: true,
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
	var said lastWords
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

// logged returns the output in a status message of BuildKit (moby.buildkit.v1.StatusResponse: field 3 holds the logs,
// whose field 4 is the text). What cannot be read is left out: it is for people only.
func logged(status []byte) []byte {
	var out []byte
	fields(status, 3, func(entry []byte) {
		fields(entry, 4, func(text []byte) { out = append(out, text...) })
	})
	return out
}

// fields calls f with each value of a message's field of bytes.
func fields(message []byte, wanted protowire.Number, f func([]byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return
		}
		if number == wanted && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			f(value)
		}
		message = message[n:]
	}
}

// BuildError says that a Dockerfile cannot be built. It belongs to the task, so retrying seldom helps.
type BuildError struct {
	Folder string
	Reason string
	// Output is the end of what its commands printed.
	Output string
}

func (e *BuildError) Error() string {
	text := fmt.Sprintf("build %s: %s", e.Folder, e.Reason)
	if output := strings.TrimSpace(e.Output); output != "" {
		text += "\n" + output
	}
	return text
}

// isTaskFailure reports whether the task's own commands failed, and not the infrastructure.
func isTaskFailure(err error) bool {
	_, prepare := errors.AsType[*PrepareError](err)
	_, built := errors.AsType[*BuildError](err)
	return prepare || built
}
