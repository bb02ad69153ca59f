package repo

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"deepswe/env/disk"
)

// ErrApplied reports that the files already have a patch's changes. Nothing was changed.
var ErrApplied = errors.New("the patch is applied already")

// ErrConflict reports that a patch does not apply to the files. Nothing was changed.
var ErrConflict = errors.New("the patch does not apply")

// Apply applies a patch to the files below dir, completely or not at all. It makes no commit and leaves the index
// alone.
func Apply(ctx context.Context, dir string, patch []byte) error { return apply(ctx, dir, patch) }

// Unapply takes an applied patch back, completely or not at all, as Apply applies it.
func Unapply(ctx context.Context, dir string, patch []byte) error {
	return apply(ctx, dir, patch, "--reverse")
}

// State describes the files of a patch below dir, so that a later change of one is noticed: each file's mode and digest
// by its path, or an empty text for one that does not exist.
func State(ctx context.Context, dir string, patch []byte) (map[string]string, error) {
	root, err := fullRoot(ctx, dir)
	if err != nil {
		return nil, err
	}
	now, err := remember(ctx, git{dir: root, env: []string{"GIT_DIR=" + os.DevNull}}, patch)
	if err != nil {
		return nil, err
	}
	state := map[string]string{}
	for _, f := range now.files {
		state[f.path] = ""
		if f.mode != 0 {
			state[f.path] = fmt.Sprintf("%s %x", f.mode, sha256.Sum256(f.data))
		}
	}
	return state, now.Close()
}

// fullRoot returns the root of the work tree that dir belongs to, or dir itself if there is none.
func fullRoot(ctx context.Context, dir string) (string, error) {
	root, err := toplevel(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("apply patch: %w", err)
	}
	return cmp.Or(root, dir), nil
}

func apply(ctx context.Context, dir string, patch []byte, options ...string) error {
	if len(bytes.TrimSpace(patch)) == 0 {
		return nil
	}
	root, err := fullRoot(ctx, dir)
	if err != nil {
		return err
	}
	// With an empty GIT_DIR, git uses the files as they are: no attributes, filters or line-ending settings of a
	// repository change the bytes that the patch was computed from.
	empty, err := disk.MakeScratch("", "apply")
	if err != nil {
		return fmt.Errorf("apply patch: %w", err)
	}
	defer disk.RemoveScratch(empty)
	g := git{dir: root, env: []string{"GIT_DIR=" + filepath.Join(empty, "none.git")}}
	before, err := remember(ctx, g, patch)
	if err != nil {
		return err
	}
	defer before.Close()
	// Git checks the whole patch before it writes anything, so it can only fail halfway if writing fails.
	args := append([]string{"apply", "--whitespace=nowarn"}, options...)
	if _, err = g.run(ctx, bytes.NewReader(patch), append(args, "-")...); err == nil {
		return nil
	}
	if rerr := before.restore(); rerr != nil {
		return fmt.Errorf("apply patch: %w; and restoring the files: %w", err, rerr)
	}
	if exitedOne(err) && len(options) == 0 {
		if _, rerr := g.run(ctx, bytes.NewReader(patch), "apply", "--reverse", "--check", "-"); rerr == nil {
			return fmt.Errorf("%w: %s has its changes", ErrApplied, root)
		}
	}
	return refused(root, err)
}

// refused explains why git refused a patch.
func refused(root string, err error) error {
	if exitedOne(err) {
		return fmt.Errorf("%w to %s: %s", ErrConflict, root, reason(err))
	}
	return fmt.Errorf("apply patch: %w", err)
}

// exitedOne reports whether git exited with status 1, which most of its commands use for "no" rather than for a
// failure.
func exitedOne(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == 1
}

// reason returns git's own message from the error of a failed command.
func reason(err error) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, "exit status 1: "); ok {
		text = after
	}
	return strings.ReplaceAll(text, "error: ", "")
}
