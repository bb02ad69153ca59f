package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// sshDialer reaches a daemon by running "docker system dial-stdio" on another machine; each connection is one ssh
// process.
type sshDialer struct {
	program string
	args    []string
	name    string
}

// newSSHDialer parses what follows ssh:// in a docker host: [user@]host[:port].
func newSSHDialer(destination string) (*sshDialer, error) {
	u, err := url.Parse("ssh://" + destination)
	if err != nil {
		return nil, fmt.Errorf("docker host ssh://%s: %w", destination, err)
	}
	switch {
	case u.Hostname() == "":
		return nil, fmt.Errorf("docker host ssh://%s: no host name", destination)
	case strings.HasPrefix(u.Hostname(), "-"):
		return nil, fmt.Errorf("docker host ssh://%s: a host name cannot begin with a dash", destination)
	case strings.Trim(u.Path, "/") != "":
		return nil, fmt.Errorf("docker host ssh://%s: a path is not supported", destination)
	}
	if _, set := u.User.Password(); set {
		return nil, fmt.Errorf("docker host ssh://%s@%s: a password cannot be given; use a key", u.User.Username(), u.Host)
	}
	// Never prompt, and do not wait for ever for a machine that is gone.
	args := []string{"-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-T"}
	if user := u.User.Username(); user != "" {
		args = append(args, "-l", user)
	}
	if port := u.Port(); port != "" {
		args = append(args, "-p", port)
	}
	args = append(args, "--", u.Hostname(), "docker", "system", "dial-stdio")
	return &sshDialer{program: "ssh", args: args, name: u.Host}, nil
}

func (d *sshDialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// The connection outlives the request that it is opened for, so ctx must not end the program.
	cmd := exec.Command(d.program, d.args...)
	// A process group of its own, because Ctrl-C must not cut the connection, which is needed for cleaning up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c := &sshConn{cmd: cmd, name: d.name}
	cmd.Stderr = &c.stderr
	var err error
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.stdout, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("ssh to %s: %w", d.name, err)
	}
	return c, nil
}

// sshConn is a net.Conn over an ssh process. Deadlines are not supported; callers close it instead.
type sshConn struct {
	cmd    *exec.Cmd
	name   string
	stdin  io.WriteCloser
	stdout io.ReadCloser
	stderr tailBuffer

	closing sync.Once
}

func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.stdout.Read(p)
	if err != nil && n == 0 {
		err = cmp.Or(c.complaint(), err)
	}
	return n, err
}

// complaint returns what ssh has written to standard error, as an error, or nil.
func (c *sshConn) complaint() error {
	if said := strings.Fields(c.stderr.String()); len(said) > 0 {
		return fmt.Errorf("ssh to %s: %s", c.name, strings.Join(said, " "))
	}
	return nil
}

func (c *sshConn) Write(p []byte) (int, error) {
	n, err := c.stdin.Write(p)
	if err != nil {
		// The reason is on ssh's standard error, and may arrive slightly later than the broken pipe.
		for range 20 {
			if why := c.complaint(); why != nil {
				return n, why
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return n, err
}

// CloseWrite implements the half-close that hijacked streams need.
func (c *sshConn) CloseWrite() error { return c.stdin.Close() }

func (c *sshConn) Close() error {
	c.closing.Do(func() {
		_ = c.stdin.Close()
		// ssh would end by itself once both sides have closed, but there is no reason to wait.
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return nil
}

func (c *sshConn) LocalAddr() net.Addr              { return sshAddr("localhost") }
func (c *sshConn) RemoteAddr() net.Addr             { return sshAddr(c.name) }
func (c *sshConn) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (c *sshConn) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (c *sshConn) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

type sshAddr string

func (a sshAddr) Network() string { return "ssh" }
func (a sshAddr) String() string  { return string(a) }
