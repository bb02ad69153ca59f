package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/env/guest/inside"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		os.Exit(inside.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// scratch is a provider whose sandboxes are copies of a directory on this machine, each with its own guest. It isolates
// nothing.
type scratch struct {
	t     testing.TB
	files map[string]string
	// fail, if set, is asked before every start.
	fail   func(start int) error
	starts atomic.Int32
	open   atomic.Int32
}

var _ env.Provider = (*scratch)(nil)

func newScratch(t testing.TB, files map[string]string) *scratch {
	t.Helper()
	p := &scratch{t: t, files: files}
	t.Cleanup(func() {
		if n := p.open.Load(); n != 0 {
			t.Errorf("%d sandboxes were not closed", n)
		}
	})
	return p
}

func (p *scratch) Name() string                   { return "scratch" }
func (p *scratch) Capabilities() env.Capabilities { return env.Capabilities{} }
func (p *scratch) Close() error                   { return nil }
func (p *scratch) Prefetch(context.Context, env.Spec) error {
	return nil
}

func (p *scratch) Reap(context.Context, env.ReapOptions) ([]env.Leftover, error) {
	return nil, nil
}

func (p *scratch) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	n := int(p.starts.Add(1))
	if p.fail != nil {
		if err := p.fail(n); err != nil {
			return nil, err
		}
	}
	dir := filepath.Join(p.t.TempDir(), fmt.Sprint("sandbox", n))
	for name, content := range p.files {
		writeFile(p.t, filepath.Join(dir, name), content)
	}
	client, err := startGuest(dir)
	if err != nil {
		return nil, err
	}
	p.open.Add(1)
	sb := env.NewGuestSandbox(client, func(context.Context) error {
		p.open.Add(-1)
		return nil
	})
	for _, line := range s.Prepare {
		if r, err := sb.Run(ctx, env.Command{Line: line, Timeout: time.Minute}); err != nil || r.ExitCode != 0 {
			return nil, errors.Join(err, fmt.Errorf("prepare: %s", output(r)), sb.Close(ctx))
		}
	}
	return sb, nil
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// pipes joins a process's standard input and output into one stream, and waits for the process on Close.
type pipes struct {
	io.Reader
	io.WriteCloser
	wait func() error
}

func (p pipes) Close() error { return errors.Join(p.WriteCloser.Close(), p.wait()) }

func startGuest(dir string) (*guest.Client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, guest.Arg, "--dir", dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return guest.Connect(context.Background(), pipes{out, in, cmd.Wait})
}
