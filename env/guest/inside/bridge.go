//go:build linux

package inside

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"deepswe/env/disk"
	"deepswe/env/guest"
)

// A guest that is PID 1 of a container listens on a socket in the abstract namespace. A second process of the same
// binary, executed in the container by the provider, is the bridge: it passes its own standard input and output to
// the guest as file descriptors and waits. So all data goes directly to the guest, and the container's log stays
// empty.

// bridgeTimeout is how long a bridge waits for the guest to listen.
const bridgeTimeout = 10 * time.Second

// strangerID is the user and group ID that a bridge changes to. No image uses it, so commands that run as root without
// capabilities cannot signal the bridge. It is within the range that user namespaces of pods map.
const strangerID = 65533

// bridge passes in and out to the guest that listens under the name, and returns when the guest closes the
// connection.
func bridge(name string, in, out *os.File) error {
	if err := prctl(prSetDumpable, 0, 0); err != nil {
		return fmt.Errorf("forbid tracing: %w", err)
	}
	if os.Getuid() == 0 {
		// A command that runs as user 0 could kill a process of user 0.
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(strangerID), syscall.Setuid(strangerID)); err != nil {
			return fmt.Errorf("change the user: %w", err)
		}
	}
	conn, err := dialGuest(name)
	if err != nil {
		return err
	}
	defer conn.Close()
	rights := syscall.UnixRights(int(in.Fd()), int(out.Fd()))
	if _, _, err := conn.WriteMsgUnix([]byte{0}, rights, nil); err != nil {
		return fmt.Errorf("pass the streams to the guest: %w", err)
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}

func dialGuest(name string) (*net.UnixConn, error) {
	address := &net.UnixAddr{Name: "@" + name, Net: "unix"}
	for deadline := time.Now().Add(bridgeTimeout); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.DialUnix("unix", nil, address)
		if err == nil {
			return conn, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no guest listens: %w", err)
		}
	}
}

// listenFor accepts bridges under the name and attaches each to the line, until the listener is closed.
func listenFor(name string, line *guest.Line) (*net.UnixListener, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(50 * time.Millisecond) // the process may have run out of file descriptors
				continue
			}
			if err := accept(conn, line); err != nil {
				conn.Close()
			}
		}
	}()
	return listener, nil
}

// accept receives a bridge's files and attaches them to the line.
func accept(conn *net.UnixConn, line *guest.Line) error {
	if err := fromOutside(conn); err != nil {
		return err
	}
	deadline := time.Now().Add(guest.HandshakeTimeout)
	if err := conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	files, err := receiveFiles(conn)
	if err != nil {
		return err
	}
	bridged := &bridged{bridge: conn, in: files[0], out: files[1]}
	if err := errors.Join(conn.SetReadDeadline(time.Time{}), bridged.in.SetDeadline(deadline)); err != nil {
		bridged.Close()
		return err
	}
	// When the bridge has ended, close our end of its streams: whatever relays them may be waiting for that.
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		bridged.Close()
	}()
	_, err = line.Attach(bridged)
	return errors.Join(err, bridged.in.SetDeadline(time.Time{}))
}

// fromOutside refuses processes of the container itself. Only a process that was put into the container from
// outside has a parent that is not visible inside. The line's key is a second safeguard.
func fromOutside(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	if ctlErr := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); ctlErr != nil || err != nil {
		return errors.Join(ctlErr, err)
	}
	stat, err := disk.ReadStat(int(peer.Pid))
	if err == nil && stat.Parent != 0 {
		err = fmt.Errorf("process %d was started inside the container", peer.Pid)
	}
	return err
}

// receiveFiles receives the two files that a bridge sends.
func receiveFiles(conn *net.UnixConn) (files [2]*os.File, err error) {
	oob := make([]byte, syscall.CmsgSpace(2*4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return files, err
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return files, fmt.Errorf("no file descriptors were received: %w", errors.Join(err, os.ErrInvalid))
	}
	descriptors, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(descriptors) != len(files) {
		for _, fd := range descriptors {
			syscall.Close(fd)
		}
		return files, fmt.Errorf("%d file descriptors were received: %w", len(descriptors), errors.Join(err, os.ErrInvalid))
	}
	for i, fd := range descriptors {
		syscall.CloseOnExec(fd)
		// A blocked read can only be interrupted, when the connection is replaced, if the Go runtime polls the
		// file.
		err = errors.Join(err, syscall.SetNonblock(fd, true))
		files[i] = os.NewFile(uintptr(fd), "bridge")
	}
	return files, err
}

// bridged is a connection over a bridge's files.
type bridged struct {
	bridge  *net.UnixConn
	in, out *os.File
}

func (b *bridged) Read(p []byte) (int, error)  { return b.in.Read(p) }
func (b *bridged) Write(p []byte) (int, error) { return b.out.Write(p) }

// Close makes the bridge return.
func (b *bridged) Close() error { return errors.Join(b.in.Close(), b.out.Close(), b.bridge.Close()) }
