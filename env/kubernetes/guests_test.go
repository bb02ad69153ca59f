package kubernetes

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// The shell installs a program that has arrived completely, compressed or not, but not one that was cut off.
func TestSendScript(t *testing.T) {
	t.Parallel()
	program := []byte("#!/bin/sh\necho greeted \"$@\"\n# the end\n")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(program)
	_ = w.Close()
	tools := t.TempDir()
	for _, name := range []string{"sh", "head", "wc", "chmod", "mv"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		if err := os.Symlink(path, filepath.Join(tools, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		form, path string
		sent       []byte
	}{{"gzip", os.Getenv("PATH"), packed.Bytes()}, {"raw", tools, program}} {
		for _, missing := range []int{0, 1} {
			dir := t.TempDir()
			script := strings.ReplaceAll(fmt.Sprintf(sendScript, packed.Len(), len(program), len(program)), guestDir, dir)
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
			cmd.Env = []string{"PATH=" + c.path}
			cmd.Stdin = bytes.NewReader(c.sent[:len(c.sent)-missing])
			out, err := cmd.Output()
			first, rest, _ := strings.Cut(string(out), "\n")
			whole := missing == 0
			if first != c.form || (err == nil) != whole || strings.HasPrefix(rest, "greeted") != whole {
				t.Errorf("%s with %d bytes missing: %v, %q", c.form, missing, err, out)
			}
			if _, err := os.Stat(filepath.Join(dir, "deepswe")); (err == nil) != whole {
				t.Errorf("%s with %d bytes missing: installed: %v", c.form, missing, err)
			}
		}
	}
}
