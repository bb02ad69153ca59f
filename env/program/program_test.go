package program

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env/testkit"
)

// A release has guests of other architectures in lib/deepswe, also if the program is reached by a link to its bin.
func TestFindOther(t *testing.T) {
	cannot := errors.New("guest: deepswe is not a Linux program")
	static := header(t, elf.EM_AARCH64)
	for _, test := range []struct {
		name, guest, want string
	}{
		{"beside the program", "usr/bin/deepswe-linux-arm64", ""},
		{"in a release", "opt/lib/deepswe/deepswe-linux-arm64", ""},
		{"of another architecture only", "opt/lib/deepswe/deepswe-linux-amd64", "GOARCH=arm64 go build -o "},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			testkit.WriteFile(t, filepath.Join(dir, test.guest), static)
			testkit.WriteFile(t, filepath.Join(dir, "opt/bin/deepswe"), "a program of a Mac")
			self := filepath.Join(dir, "usr/bin/deepswe")
			if err := errors.Join(os.MkdirAll(filepath.Dir(self), 0o755), os.Symlink("../../opt/bin/deepswe", self)); err != nil {
				t.Fatal(err)
			}
			found, err := findOther(self, "arm64", cannot)
			switch {
			case test.want == "" && (err != nil || filepath.Base(found.Path) != "deepswe-linux-arm64"):
				t.Errorf("found %s, %v", found.Path, err)
			case test.want != "" && (!errors.Is(err, cannot) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

// header returns the ELF header of a Linux program, the only part that is read.
func header(t *testing.T, machine elf.Machine) string {
	t.Helper()
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	h.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, h); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
