package docker

import (
	"archive/tar"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Where the guest's binary is found inside a container.
const (
	guestDir  = "/.deepswe"
	guestName = "deepswe"
	guestPath = guestDir + "/" + guestName
	// guestMark is written after the binary: a volume without it is not complete.
	guestMark = "complete"
)

// guestBinary is a program that can be a guest.
type guestBinary struct {
	path string
	size int64
	hash string // SHA-256, in hex
}

// findGuest returns the program that becomes the guest on daemons of an architecture.
func findGuest(executable, arch string) (guestBinary, error) {
	if executable != "" {
		return openGuest(executable, arch)
	}
	self, err := os.Executable()
	if err != nil {
		return guestBinary{}, fmt.Errorf("guest: %w", err)
	}
	own, err := openGuest(self, arch)
	if err == nil {
		return own, nil
	}
	beside := filepath.Join(filepath.Dir(self), "deepswe-linux-"+arch)
	other, otherErr := openGuest(beside, arch)
	if otherErr == nil {
		return other, nil
	}
	if !errors.Is(otherErr, os.ErrNotExist) {
		err = errors.Join(err, otherErr)
	}
	return guestBinary{}, fmt.Errorf(
		"%w; to fix: build one beside it: CGO_ENABLED=0 GOOS=linux GOARCH=%s go build -o %s deepswe", err, arch, beside)
}

// openGuest checks that a file runs in any Linux container of an architecture.
func openGuest(path, arch string) (guestBinary, error) {
	f, err := os.Open(path)
	if err != nil {
		return guestBinary{}, fmt.Errorf("guest: %w", err)
	}
	defer f.Close()
	program, err := elf.NewFile(f)
	if err != nil {
		return guestBinary{}, fmt.Errorf("guest: %s is not a Linux program", path)
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if want, known := machines[arch]; known && program.Machine != want {
		return guestBinary{}, fmt.Errorf("guest: %s is built for %v, the daemon runs %s", path, program.Machine, arch)
	}
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			return guestBinary{}, fmt.Errorf("guest: %s is not static, so it does not run in every image", path)
		}
	}
	hash := sha256.New()
	size, err := io.Copy(hash, io.NewSectionReader(f, 0, 1<<62))
	if err != nil {
		return guestBinary{}, fmt.Errorf("guest: %w", err)
	}
	return guestBinary{path: path, size: size, hash: hex.EncodeToString(hash.Sum(nil))}, nil
}

// archive is the binary as a tar stream, below prefix, with whatever more is wanted after it. Everybody may read and
// run it, nobody may write.
func (g guestBinary) archive(prefix string, after ...tar.Header) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(func() error {
			f, err := os.Open(g.path)
			if err != nil {
				return err
			}
			defer f.Close()
			tw := tar.NewWriter(w)
			if err := tw.WriteHeader(&tar.Header{
				Typeflag: tar.TypeReg, Name: prefix + guestName, Mode: 0o555, Size: g.size, ModTime: time.Unix(1, 0),
			}); err != nil {
				return err
			}
			// A file that was replaced meanwhile is noticed: by its size here, by its hash in the guest's greeting.
			if _, err := io.CopyN(tw, f, g.size); err != nil {
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
