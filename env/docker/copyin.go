package docker

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/program"
	"deepswe/env/repo"
)

// makeDir creates the working directory if the image does not have it.
func (s *Sandbox) makeDir(ctx context.Context) error {
	if _, err := s.List(ctx, s.spec.Dir, env.ListOptions{Limit: 1}); !errors.Is(err, fs.ErrNotExist) {
		return nil // it exists; if it cannot be used, the first call fails
	}
	// The guest acts with the command user's rights. If those do not suffice, the daemon creates it, which is
	// slower.
	var archive bytes.Buffer
	if _, err := pack(ctx, &archive, s.spec, s.user); err != nil {
		return err
	}
	if s.Unpack(ctx, "/", &archive) == nil {
		return nil
	}
	_, err := s.d.copyIn(ctx, s)
	return err
}

// copyIn copies the spec's repository into a container, or creates an empty working directory. The daemon writes
// the files, because it can give them to the command user, while the guest may not change owners. It returns the
// repository's files.
func (d *daemon) copyIn(ctx context.Context, s *Sandbox) (files []env.KnownFile, err error) {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		// Without the buffer, every header and every small file would wait for the other end.
		buffer := bufio.NewWriterSize(w, 256<<10)
		var err error
		if files, err = pack(ctx, buffer, s.spec, s.user); err == nil {
			err = buffer.Flush()
		}
		w.CloseWithError(err)
		packed <- err
	}()
	_, err = d.cli.CopyToContainer(ctx, s.id, client.CopyToContainerOptions{
		DestinationPath: "/", Content: r, AllowOverwriteDirWithFile: true,
	})
	r.Close()
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, io.ErrClosedPipe) {
		err = packErr
	}
	if err != nil {
		return nil, fmt.Errorf("copy in: %w", err)
	}
	return files, nil
}

// pack writes the tar stream for copyIn, relative to the container's root.
func pack(ctx context.Context, to io.Writer, s env.Spec, owner user) (files []env.KnownFile, err error) {
	tw := tar.NewWriter(to)
	inside := strings.TrimPrefix(s.Dir, "/")
	// /tmp is the home of users missing from the image's passwd; small images lack it.
	dir := tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777, ModTime: time.Now().Truncate(time.Second)}
	if s.CopyIn == "" {
		dir.Name, dir.Mode, dir.Uid, dir.Gid = inside+"/", 0o755, owner.uid, owner.gid
	}
	err = tw.WriteHeader(&dir)
	if err == nil && s.CopyIn != "" {
		files, err = repo.Pack(ctx, tw, s, inside, owner.uid, owner.gid)
	}
	if err != nil {
		return nil, err
	}
	return files, tw.Close()
}

// Paths of the guest's binary inside a container.
const (
	guestDir  = "/.deepswe"
	guestName = "deepswe"
	guestPath = guestDir + "/" + guestName
	// guestMark is written after the binary; a volume without it is incomplete.
	guestMark = "complete"
)

// archiveOf returns a program as a tar stream below prefix, followed by the entries in after. All users may read
// and execute it; none may write it.
func archiveOf(g program.Program, prefix string, after ...tar.Header) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(func() error {
			f, err := os.Open(g.Path)
			if err != nil {
				return err
			}
			defer f.Close()
			tw := tar.NewWriter(w)
			if err := tw.WriteHeader(&tar.Header{
				Typeflag: tar.TypeReg, Name: prefix + guestName, Mode: 0o555, Size: g.Size, ModTime: time.Unix(1, 0),
			}); err != nil {
				return err
			}
			// If the binary was replaced meanwhile, either its size here or its hash in the guest's greeting will
			// show it.
			if _, err := io.CopyN(tw, f, g.Size); err != nil {
				return err
			}
			for _, h := range after {
				if err := tw.WriteHeader(&h); err != nil {
					return err
				}
			}
			return tw.Close()
		}())
	}()
	return r
}
