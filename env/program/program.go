// Package program finds the executable that becomes the guest in a container: usually the running one.
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

// Program is one that can be a guest.
type Program struct {
	Path string
	Size int64
	Hash string // SHA-256, in hex
}

// Find returns the program that becomes the guest on machines of an architecture: the executable where one is named,
// else this program, or deepswe-linux-ARCH beside it where this program would not run there.
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
	beside := filepath.Join(filepath.Dir(self), "deepswe-linux-"+arch)
	other, otherErr := Open(beside, arch)
	if otherErr == nil {
		return other, nil
	}
	if !errors.Is(otherErr, os.ErrNotExist) {
		err = errors.Join(err, otherErr)
	}
	return Program{}, fmt.Errorf(
		"%w; to fix: build one beside it: CGO_ENABLED=0 GOOS=linux GOARCH=%s go build -o %s deepswe", err, arch, beside)
}

// Open checks that a file runs in any Linux container of an architecture.
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
