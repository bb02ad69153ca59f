//go:build linux

package inside

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"deepswe/env/guest"
)

// openRegular opens a regular file for reading. It never blocks on another kind of file, and never touches a device:
// the kind is looked at before the file is opened, and once more after, because names can be exchanged in between.
func openRegular(path string, noFollow bool) (*os.File, os.FileInfo, error) {
	look, flags := os.Stat, syscall.O_NONBLOCK|syscall.O_NOCTTY
	if noFollow {
		look, flags = os.Lstat, flags|syscall.O_NOFOLLOW
	}
	info, err := look(path)
	if err != nil {
		return nil, nil, err
	}
	if err := regular(path, info); err != nil {
		return nil, nil, err
	}
	f, err := open(path, os.O_RDONLY|flags)
	if err != nil {
		if noFollow && errors.Is(err, syscall.ELOOP) {
			err = fmt.Errorf("%s: %w", path, guest.ErrNotRegular)
		}
		return nil, nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = regular(path, info)
	}
	if err == nil {
		err = notSelf(path, f)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// open opens a file, but not through the links of /proc that lead into a process: the guest could follow them to places
// that a command cannot reach. Kernels before 5.6 have no such check.
func open(path string, flags int) (*os.File, error) {
	const sysOpenat2, noMagicLinks = 437, 2 // alike on every platform
	how := struct{ flags, mode, resolve uint64 }{uint64(flags | syscall.O_CLOEXEC | syscall.O_LARGEFILE), 0, noMagicLinks}
	name, err := syscall.BytePtrFromString(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	const here = -100 // AT_FDCWD
	at := here
	for {
		fd, _, errno := syscall.Syscall6(sysOpenat2, uintptr(at), uintptr(unsafe.Pointer(name)),
			uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		switch errno {
		case 0:
			return os.NewFile(fd, path), nil
		case syscall.EINTR, syscall.EAGAIN: // a name changed meanwhile
		case syscall.ENOSYS, syscall.EPERM: // an old kernel, or an old filter around the guest
			return os.OpenFile(path, flags, 0)
		default:
			return nil, &fs.PathError{Op: "open", Path: path, Err: errno}
		}
	}
}

func regular(path string, info os.FileInfo) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%s: %w", path, guest.ErrIsDirectory)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w", path, guest.ErrNotRegular)
	}
	return nil
}

// notSelf keeps file verbs out of the guest's own folder in /proc, which the guest may always read, and a command may
// not.
func notSelf(path string, f *os.File) error {
	const procMagic = 0x9fa0
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var stat syscall.Statfs_t
	_ = raw.Control(func(fd uintptr) { err = syscall.Fstatfs(int(fd), &stat) })
	if err != nil || int64(stat.Type) != procMagic { //nolint:unconvert // of another size elsewhere
		return nil
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil || strings.HasPrefix(resolved+"/", "/proc/"+strconv.Itoa(os.Getpid())+"/") {
		return fmt.Errorf("%s: %w", path, fs.ErrPermission)
	}
	return nil
}

// smallFile is the largest file that readAtOnce reads, mostHashed the largest that has a version.
const (
	smallFile  = 64 << 10
	mostHashed = 1 << 30
)

// readAtOnce is read for small files, which takes no noticeable time. It returns nil for all others and after errors.
func readAtOnce(c *guest.Call, path string, o guest.ReadOptions) guest.Message {
	f, info, err := openRegular(path, o.NoFollow)
	if err != nil {
		return nil
	}
	defer f.Close()
	size := info.Size()
	if size == 0 || size > smallFile {
		return nil // not a small file, or one that the kernel generates
	}
	data := make([]byte, size+1)
	n, err := io.ReadFull(f, data)
	if !errors.Is(err, io.ErrUnexpectedEOF) || int64(n) != size {
		return nil
	}
	sum := sha256.Sum256(data[:n])
	d := describe(path, info)
	d.Version = hex.EncodeToString(sum[:])
	if c.Send(data[:min(size, o.Limit)]) != nil {
		return nil
	}
	return &d
}

// read sends the part of a file that was asked for while it hashes the whole.
func read(c *guest.Call, path string, o guest.ReadOptions) (guest.Message, error) {
	f, info, err := openRegular(path, o.NoFollow)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	reply := describe(path, info)
	if info.Size() > mostHashed {
		// Files of this size are not edited, and hashing one would take as long as a command may.
		_, err := io.Copy(&resultWriter{c, o.Limit}, io.LimitReader(f, o.Limit))
		return &reply, err
	}
	w := &resultWriter{c, o.Limit}
	reply.Version, reply.Size, err = version(c.Context(), io.TeeReader(f, w), buffer(info.Size()))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &reply, nil
}

// buffer is one to read a file of that size with, its end included.
func buffer(size int64) []byte { return make([]byte, min(max(size+1, 512), 64<<10)) }

// resultWriter sends the beginning of a stream as the call's result.
type resultWriter struct {
	call *guest.Call
	left int64
}

func (w *resultWriter) Write(p []byte) (int, error) {
	if err := w.call.Context().Err(); err != nil {
		return 0, err
	}
	part := bytes.Clone(p[:min(w.left, int64(len(p)))]) // the sender keeps it
	w.left -= int64(len(part))
	return len(p), w.call.Send(part)
}

// version hashes a file from its beginning to its end, and says how long it was. A file that grows as fast
// as it is read ends at the limit, and has no version.
func version(ctx context.Context, f io.Reader, buf []byte) (sum string, size int64, err error) {
	hash := sha256.New()
	for {
		n, err := f.Read(buf)
		hash.Write(buf[:n])
		size += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			return hex.EncodeToString(hash.Sum(nil)), size, nil
		case err != nil:
			return "", size, err
		case size > mostHashed:
			return "", size, nil
		case ctx.Err() != nil:
			return "", size, ctx.Err()
		}
	}
}
