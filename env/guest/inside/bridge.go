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

// A guest that is PID 1 of a container listens on a socket in the abstract namespace. Another process of the same
// binary, executed in the container from outside, is the bridge: it hands its own standard input and output to the
// guest and waits. So no byte takes another way through it, and the container's log stays empty.

// bridgeTimeout is how long a bridge waits for the guest to listen.
const bridgeTimeout = 10 * time.Second

// strangerID is a user and group that owns no file and no process of an image: commands that are root without root's
// capabilities have no rights over what belongs to it. It is within what a user namespace of a pod maps.
const strangerID = 65533

// bridge hands in and out to the guest that listens under the name, and returns when the guest lets go of them.
func bridge(name string, in, out *os.File) error {
	if err := prctl(prSetDumpable, 0, 0); err != nil {
		return fmt.Errorf("forbid tracing: %w", err)
	}
	if os.Getuid() == 0 {
		// A command of user 0 could end another process of user 0.
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(strangerID), syscall.Setuid(strangerID)); err != nil {
			return fmt.Errorf("become another user: %w", err)
		}
	}
	conn, err := dialGuest(name)
	if err != nil {
		return err
	}
	defer conn.Close()
	rights := syscall.UnixRights(int(in.Fd()), int(out.Fd()))
	if _, _, err := conn.WriteMsgUnix([]byte{0}, rights, nil); err != nil {
		return fmt.Errorf("hand over to the guest: %w", err)
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

// listenFor accepts bridges under the name and makes each the line's connection, until the listener is closed.
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
				time.Sleep(50 * time.Millisecond) // out of descriptors, perhaps
				continue
			}
			if err := accept(conn, line); err != nil {
				conn.Close()
			}
		}
	}()
	return listener, nil
}

// accept takes over what a bridge hands over, and attaches it to the line.
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
	// When the bridge is gone, so is the connection: whatever carries it may wait for our end to be closed.
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		bridged.Close()
	}()
	_, err = line.Attach(bridged)
	return errors.Join(err, bridged.in.SetDeadline(time.Time{}))
}

// fromOutside refuses processes of the container. Only one that was put into it from outside has a parent that is not
// there. The key of the line is a second lock.
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
		err = fmt.Errorf("process %d is not from outside", peer.Pid)
	}
	return err
}

// receiveFiles takes the two files that a bridge sends.
func receiveFiles(conn *net.UnixConn) (files [2]*os.File, err error) {
	oob := make([]byte, syscall.CmsgSpace(2*4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return files, err
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return files, fmt.Errorf("no files came: %w", errors.Join(err, os.ErrInvalid))
	}
	descriptors, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(descriptors) != len(files) {
		for _, fd := range descriptors {
			syscall.Close(fd)
		}
		return files, fmt.Errorf("%d files came: %w", len(descriptors), errors.Join(err, os.ErrInvalid))
	}
	for i, fd := range descriptors {
		syscall.CloseOnExec(fd)
		// Only the runtime's own poller lets a read be given up when the connection is replaced.
		err = errors.Join(err, syscall.SetNonblock(fd, true))
		files[i] = os.NewFile(uintptr(fd), "bridge")
	}
	return files, err
}

// bridged is the connection over a bridge's files.
type bridged struct {
	bridge  *net.UnixConn
	in, out *os.File
}

func (b *bridged) Read(p []byte) (int, error)  { return b.in.Read(p) }
func (b *bridged) Write(p []byte) (int, error) { return b.out.Write(p) }

// Close lets the bridge go.
func (b *bridged) Close() error { return errors.Join(b.in.Close(), b.out.Close(), b.bridge.Close()) }
