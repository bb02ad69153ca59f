package guest

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
)

// verb is the operation that a call requests.
type verb byte

const (
	verbPing verb = iota + 1
	verbRun
	verbRead
	verbWrite
	verbList
	verbSearch
	verbTree
	verbUnpack
	verbTidy
	verbListen
	verbAccept
	verbRemember
)

// request returns an empty message for the verb's arguments, or nil if the verb is unknown.
func (v verb) request() Message {
	switch v {
	case verbPing:
		return new(PingCall)
	case verbRun:
		return new(RunCall)
	case verbRead:
		return new(ReadCall)
	case verbWrite:
		return new(WriteCall)
	case verbList:
		return new(ListCall)
	case verbSearch:
		return new(Query)
	case verbTree:
		return new(TreeCall)
	case verbUnpack:
		return new(UnpackCall)
	case verbTidy:
		return new(TidyCall)
	case verbListen:
		return new(ListenCall)
	case verbAccept:
		return new(AcceptCall)
	case verbRemember:
		return new(RememberCall)
	}
	return nil
}

func (h *Hello) code(c *coder) {
	signed(c, &h.Protocol)
	str(c, &h.Build)
	signed(c, &h.UID, &h.CommandUID, &h.CommandGID)
	str(c, &h.Dir)
	signed(c, &h.Silence)
	signed(c, &h.Space.Free, &h.Space.Total, &h.Space.FreeFiles, &h.Space.Files)
}

// nothing is the reply of verbs without a result.
type nothing struct{}

func (nothing) code(*coder) {}

// PingCall requests an empty reply.
type PingCall struct{ nothing }

// TidyCall ends everything that commands have started, and flattens directories that are too deep to remove. The reply
// is empty. Calls of running commands get no reply.
type TidyCall struct{ nothing }

// RunCall requests a command. If HasStdin is set, its standard input is the call's body.
type RunCall struct {
	Command
	HasStdin bool
	// AsGuest runs the command as the guest's own user, with its privileges.
	AsGuest bool
}

func (r *RunCall) code(c *coder) {
	str(c, &r.Line)
	str(c, &r.Shell)
	str(c, &r.Dir)
	c.strings(&r.Env)
	signed(c, &r.Timeout, &r.Grace)
	signed(c, &r.Head, &r.Tail)
	c.bools(&r.HasStdin, &r.AsGuest, &r.EndAll)
}

// capture is the part of an Output that the reply contains. The captured bytes precede the reply as data.
type capture struct {
	head, tail int
	size       int64
}

func (o *capture) code(c *coder) {
	signed(c, &o.head, &o.tail)
	signed(c, &o.size)
}

// runReply is a Result. The captured bytes (head and tail of stdout, then of stderr) precede it as data.
type runReply struct {
	Result
	stdout, stderr capture
}

func (r *runReply) code(c *coder) {
	signed(c, &r.ExitCode)
	str(c, &r.Signal)
	c.bools(&r.TimedOut, &r.Cancelled, &r.OutOfMemory, &r.OutOfDisk)
	signed(c, &r.Background)
	signed(c, &r.Elapsed)
	r.stdout.code(c)
	r.stderr.code(c)
}

func (f *FileInfo) code(c *coder) {
	str(c, &f.Path)
	str(c, &f.Kind)
	c.mode(&f.Mode)
	signed(c, &f.Size)
	str(c, &f.Version)
	str(c, &f.Target)
}

// ReadCall requests a file.
type ReadCall struct {
	Path string
	ReadOptions
}

func (r *ReadCall) code(c *coder) {
	str(c, &r.Path)
	signed(c, &r.Limit)
	c.bools(&r.NoFollow)
}

// WriteCall requests that a file be replaced or created. Its new content is the call's body.
type WriteCall struct {
	Path string
	WriteOptions
}

func (w *WriteCall) code(c *coder) {
	str(c, &w.Path)
	str(c, &w.IfVersion)
	c.bools(&w.Create, &w.Parents)
	c.mode(&w.Mode)
}

// ListCall requests a directory's entries.
type ListCall struct {
	Path string
	ListOptions
}

func (l *ListCall) code(c *coder) {
	str(c, &l.Path)
	signed(c, &l.Depth)
	c.bools(&l.Hidden)
	signed(c, &l.Limit)
}

// code leaves the entries out: they precede the reply as data.
func (l *Listing) code(c *coder) { c.bools(&l.Truncated) }

func (q *Query) code(c *coder) {
	str(c, &q.Term)
	c.bools(&q.Regexp)
	str(c, &q.Path)
	c.strings(&q.Names)
	c.bools(&q.Hidden)
	c.strings(&q.Skip)
	signed(c, &q.MaxMatches, &q.MaxLine)
}

func (m *Match) code(c *coder) {
	str(c, &m.Path)
	signed(c, &m.Line)
	str(c, &m.Text)
	c.bools(&m.Cut)
}

// code leaves the matches out: they precede the reply as data.
func (m *Matches) code(c *coder) {
	signed(c, &m.Files, &m.Total, &m.Binary, &m.Unreadable)
}

// TreeCall requests all files below a directory.
type TreeCall struct {
	Root string
	TreeOptions
}

func (t *TreeCall) code(c *coder) {
	str(c, &t.Root)
	signed(c, &t.Limit)
	c.strings(&t.Skip)
	c.bools(&t.Remember)
}

// RememberCall gives the versions of files below a directory. Its body is a list of [KnownFile].
type RememberCall struct{ Root string }

func (r *RememberCall) code(c *coder) { str(c, &r.Root) }

func (f *KnownFile) code(c *coder) {
	str(c, &f.Path)
	signed(c, &f.Size)
	signed(c, &f.Modified)
	str(c, &f.Version)
}

// UnpackCall requests that a tar stream, the call's body, be extracted.
type UnpackCall struct{ Dir string }

func (u *UnpackCall) code(c *coder) { str(c, &u.Dir) }

// ListenCall asks for a listener on a port of the sandbox's loopback interface.
type ListenCall struct{ Port int }

func (l *ListenCall) code(c *coder) { signed(c, &l.Port) }

// AcceptCall asks for the next connection to a port. The reply begins with one byte when there is a connection,
// followed by what the other end sends. The body of the call is sent to the other end.
type AcceptCall struct{ Port int }

func (a *AcceptCall) code(c *coder) { signed(c, &a.Port) }

// credit allows the host to send that many more bytes of a body.
type credit struct{ bytes int }

func (r *credit) code(c *coder) { signed(c, &r.bytes) }

// failure is an error sent over the wire: its text, and the number of its sentinel.
type failure struct {
	sentinel int
	text     string
}

func (f *failure) code(c *coder) {
	signed(c, &f.sentinel)
	str(c, &f.text)
}

func (f *failure) Error() string { return f.text }

func (f *failure) Unwrap() error {
	known := sentinels()
	if f.sentinel <= 0 || f.sentinel > len(known) {
		return nil
	}
	return known[f.sentinel-1]
}

// sentinels lists the errors that can still be recognised after being sent. Their index is their number on the
// wire.
func sentinels() []error {
	return []error{
		ErrChanged, ErrIsDirectory, ErrNotDirectory, ErrNotRegular, ErrTooLarge, fs.ErrNotExist, fs.ErrExist,
		fs.ErrPermission, fs.ErrInvalid, context.Canceled, ErrNoSpace, ErrInfrastructure,
	}
}

// Broken reports whether an error of the operating system shows that the machine fails, whatever a command has done:
// a disk that cannot be read, or a lack of memory or of descriptors. Files of the kernel, such as /proc/self/mem, may
// give such errors at any time.
func Broken(err error) bool {
	if at, ok := errors.AsType[*fs.PathError](err); ok &&
		(strings.HasPrefix(at.Path, "/proc/") || strings.HasPrefix(at.Path, "/sys/")) {
		return false
	}
	return slices.ContainsFunc([]error{
		syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ESTALE, syscall.EBADMSG, syscall.ESHUTDOWN,
	}, func(known error) bool { return errors.Is(err, known) })
}

// misused reports whether an error, on a machine that works, shows that a call does not suit a file or a name, such
// as writing to a running program. Commands can cause that.
func misused(err error) bool {
	number, ok := errors.AsType[syscall.Errno](err)
	return ok && !number.Is(fs.ErrNotExist) && !number.Is(fs.ErrExist) && !number.Is(fs.ErrPermission)
}

func newFailure(err error) *failure {
	f := &failure{text: err.Error()}
	switch {
	case Broken(err):
		err = ErrInfrastructure
	case errors.Is(err, syscall.ENOTDIR):
		err = ErrNotDirectory
	case errors.Is(err, syscall.EISDIR):
		err = ErrIsDirectory
	case errors.Is(err, syscall.EROFS):
		err = fs.ErrPermission
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		err = ErrNoSpace
	case misused(err):
		err = fs.ErrInvalid
	}
	for i, s := range sentinels() {
		if errors.Is(err, s) {
			f.sentinel = i + 1
			break
		}
	}
	return f
}
