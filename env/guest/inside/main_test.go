//go:build linux

package inside

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"deepswe/env/guest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		os.Exit(Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// pipes joins a process's standard input and output into one stream.
type pipes struct {
	io.ReadCloser
	in io.WriteCloser
}

func (p pipes) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p pipes) Close() error                { return errors.Join(p.in.Close(), p.ReadCloser.Close()) }

// start runs this test binary as a guest in a directory.
func start(t testing.TB, dir string, args ...string) *guest.Client {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{guest.Arg, "--dir", dir}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := guest.Connect(context.Background(), pipes{out, in})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the guest ended with %v", err)
		}
	})
	return c
}
