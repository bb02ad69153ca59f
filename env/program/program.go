// Package program finds the executable that serves as the guest in a container: usually the running one.
package program

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Program is an executable that can serve as a guest.
type Program struct {
	Path string
	Size int64
	Hash string // SHA-256, in hex
}

// Find returns the guest for machines of an architecture (amd64, arm64): the executable, if given; otherwise the
// running program; or, if that cannot run there, deepswe-linux-ARCH in the same directory or where a release has it,
// in lib/deepswe beside bin.
func Find(executable, arch string) (Program, error) {
	if executable != "" {
		return Open(executable, arch)
	}
	self, err := os.Executable()
	if err != nil {
		return Program{}, fmt.Errorf("guest: %w", err)
	}
	own, err := Open(self, arch)
	if err == nil {
		return own, nil
	}
	return findOther(self, arch, err)
}

// findOther looks for a guest near the program self, which cannot be one because of err.
func findOther(self, arch string, err error) (Program, error) {
	name := "deepswe-linux-" + arch
	beside := filepath.Join(filepath.Dir(self), name)
	candidates := []string{beside}
	// Package managers link a program into a directory that has nothing else of it.
	if real, linkErr := filepath.EvalSymlinks(self); linkErr == nil {
		candidates = append(candidates, filepath.Join(filepath.Dir(real), "..", "lib", "deepswe", name))
	}
	for _, path := range candidates {
		other, otherErr := Open(path, arch)
		if otherErr == nil {
			return other, nil
		}
		if !errors.Is(otherErr, os.ErrNotExist) {
			err = errors.Join(err, otherErr)
		}
	}
	return Program{}, fmt.Errorf(
		"%w; to fix: build one beside it: CGO_ENABLED=0 GOOS=linux GOARCH=%s go build -o %s deepswe", err, arch, beside)
}

// Open checks that the file at path runs in any Linux container of an architecture: a static ELF executable.
func Open(path, arch string) (Program, error) {
	f, err := os.Open(path)
	if err != nil {
		return Program{}, fmt.Errorf("guest: %w", err)
	}
	defer f.Close()
	program, err := elf.NewFile(f)
	if err != nil {
		return Program{}, fmt.Errorf("guest: %s is not a Linux program", path)
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if want, known := machines[arch]; known && program.Machine != want {
		return Program{}, fmt.Errorf("guest: %s is built for %v, the machine runs %s", path, program.Machine, arch)
	}
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return Program{}, fmt.Errorf("guest: %s is not static, so it does not run in every image", path)
	}
	hash := sha256.New()
	size, err := io.Copy(hash, io.NewSectionReader(f, 0, 1<<62))
	if err != nil {
		return Program{}, fmt.Errorf("guest: %w", err)
	}
	return Program{Path: path, Size: size, Hash: hex.EncodeToString(hash.Sum(nil))}, nil
}
