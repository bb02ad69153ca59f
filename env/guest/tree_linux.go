package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// tree sends every file below root, sorted by path, hashed by several threads at once.
func tree(c *call, root string, o TreeOptions) (message, error) {
	if o.MaxHash <= 0 {
		o.MaxHash = defaultHash
	}
	c.server.width.widen()
	defer c.server.width.narrow()
	out := batch{send: c.data}
	hashing := fan[FileInfo, []FileInfo]{
		ctx: c.ctx, hands: c.server.hands,
		work: func(files []FileInfo) []FileInfo {
			buf := make([]byte, 64<<10)
			for i := range files {
				hash(c.ctx, root, &files[i], buf, o.MaxHash)
			}
			return files
		},
		deliver: func(files []FileInfo) error {
			for i := range files {
				if err := out.add(&files[i]); err != nil {
					return err
				}
			}
			return c.ctx.Err()
		},
	}
	count := 0
	add := func(path string, info fs.FileInfo) error {
		if count++; count > o.Limit {
			return fmt.Errorf("%s: more than %d files: %w", root, o.Limit, ErrTooLarge)
		}
		f := describe(path, info)
		f.Path = strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
		return hashing.add(f, min(f.Size, o.MaxHash))
	}
	walk := walker{
		ctx:    c.ctx,
		enter:  func(_, name string) bool { return name != ".git" },
		file:   func(path string, entry os.DirEntry) error { return treeFile(path, entry, add) },
		broken: func(path string, err error) error { return treeBroken(path, err, add) },
	}
	if err := hashing.finish(walk.walk(root)); err != nil {
		return nil, err
	}
	return nothing{}, out.flush()
}

// treeFile adds a file, if it is still there. A file named .git links a submodule or a work tree to its repository.
func treeFile(path string, entry os.DirEntry, add func(string, fs.FileInfo) error) error {
	if entry.Name() == ".git" {
		return nil
	}
	info, err := entry.Info()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return add(path, info)
}

// treeBroken adds a directory that cannot be read: whoever compares trees must know that something is hidden there.
func treeBroken(path string, broken error, add func(string, fs.FileInfo) error) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(broken, fs.ErrNotExist), errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return broken
	}
	return add(path, info)
}

// hash fills in a regular file's version, where it can be read.
func hash(ctx context.Context, root string, f *FileInfo, buf []byte, most int64) {
	if f.Kind != KindFile || f.Size > most {
		return
	}
	file, _, err := openRegular(join(root, f.Path), true)
	if err != nil {
		return
	}
	defer file.Close()
	f.Version, f.Size, _ = version(ctx, file, buf, most)
}
