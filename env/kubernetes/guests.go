package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"deepswe/env/guest"
	"deepswe/env/program"
)

// guests provides the program that becomes the guest in every pod. It is found, and compressed, when first needed.
type guests struct {
	executable string

	mu     sync.Mutex
	binary program.Program
	packed []byte
}

// arch is the architecture of the nodes that run sandboxes, assumed to be this program's.
const arch = runtime.GOARCH

func (g *guests) find() (program.Program, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	if g.binary.Path == "" {
		g.binary, err = program.Find(g.executable, arch)
	}
	return g.binary, err
}

// pack returns the program and its compressed content.
func (g *guests) pack() (binary program.Program, packed []byte, err error) {
	if binary, err = g.find(); err != nil {
		return binary, nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.packed != nil {
		return binary, g.packed, nil
	}
	f, err := os.Open(binary.Path)
	if err != nil {
		return binary, nil, err
	}
	defer f.Close()
	var to bytes.Buffer
	w := gzip.NewWriter(&to)
	n, err := io.Copy(w, f)
	if err := errors.Join(err, w.Close()); err != nil {
		return binary, nil, err
	}
	if n != binary.Size {
		return binary, nil, fmt.Errorf("guest: %s changed while it was being read", binary.Path)
	}
	g.packed = to.Bytes()
	return binary, g.packed, nil
}

// sendScript receives the guest on standard input, and then becomes a bridge to it. It first prints which
// compression it supports. Standard input may end early, so a program that is not whole must not be installed.
const sendScript = `cd ` + guestDir + ` || exit 1
if [ -x deepswe ]; then echo have
elif command -v gzip >/dev/null 2>&1; then
	echo gzip; head -c %d | gzip -dc >part.$$ && chmod 555 part.$$ && mv part.$$ deepswe
else
	echo raw; head -c %d >part.$$ && [ "$(wc -c <part.$$)" -eq %d ] && chmod 555 part.$$ && mv part.$$ deepswe
fi &&
exec ` + guestPath + ` ` + guest.Arg + ` --bridge ` + bridgeName

// bridgeCommand returns the command that connects to a pod's guest.
func bridgeCommand() []string { return []string{guestPath, guest.Arg, "--bridge", bridgeName} }

// inject sends the guest to a pod and opens a stream to it.
func (c *cluster) inject(ctx context.Context, pod string) (io.ReadWriteCloser, error) {
	binary, packed, err := c.guests.pack()
	if err != nil {
		return nil, err
	}
	s, err := c.exec(ctx, pod, "/bin/sh", "-c", fmt.Sprintf(sendScript, len(packed), binary.Size, binary.Size))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	in := bufio.NewReader(s)
	form, err := in.ReadString('\n')
	if err == nil {
		switch strings.TrimSpace(form) {
		case "have":
		case "gzip":
			err = inPieces(s, bytes.NewReader(packed))
		case "raw":
			err = sendFile(s, binary)
		default:
			err = fmt.Errorf("unexpected output of the image's shell: %.100q", form)
		}
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("send the guest: %w", err)
	}
	return struct {
		io.Reader
		io.WriteCloser
	}{in, s}, nil
}

func sendFile(s io.Writer, binary program.Program) error {
	f, err := os.Open(binary.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	return inPieces(s, io.LimitReader(f, binary.Size))
}

// inPieces copies a stream in messages that are small enough for every proxy.
func inPieces(to io.Writer, from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 32<<10))
	return err
}
