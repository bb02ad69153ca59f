package guest

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"deepswe/env/disk"
)

// These errors, and the errors of package fs (ErrNotExist, ErrExist, ErrPermission, ErrInvalid), can be recognised
// with [errors.Is] on the host. ErrInvalid is for requests that can never succeed: an invalid pattern, a name that
// is too long or contains a NUL byte, a cycle of symbolic links.
var (
	// ErrChanged refuses a write because the file has changed since the writer read it.
	ErrChanged = errors.New("file changed since it was read")
	// ErrIsDirectory and ErrNotDirectory refuse a verb on the wrong kind of file.
	ErrIsDirectory  = errors.New("is a directory")
	ErrNotDirectory = errors.New("not a directory")
	// ErrNotRegular refuses to read or write devices, sockets and pipes, which might block for ever.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge refuses what exceeds the limits of the request.
	ErrTooLarge = errors.New("too large")
	// ErrNoSpace reports that a disk is full: the sandbox's own, or the machine's.
	ErrNoSpace = errors.New("no space left on the disk")
	// ErrClosed reports that the guest is gone. Every later call of its client returns it, together with
	// ErrInfrastructure.
	ErrClosed = errors.New("guest is gone")
	// ErrInfrastructure marks failures of the sandbox itself, as opposed to those of a command or a file.
	ErrInfrastructure = errors.New("sandbox failed")
)

// Command is a command line for a fresh shell. Only Line is required.
type Command struct {
	// Line is passed to Shell with -c, byte for byte.
	Line string
	// Shell is the interpreter, as a path or a name in the sandbox's PATH. If empty, it is bash, or sh if there is
	// no bash.
	Shell string
	// Dir is the working directory; if empty, the directory that the guest was started for.
	Dir string
	// Env is added to the sandbox's environment, as "KEY=value".
	Env []string
	// Stdin is the command's standard input, empty by default; it is never a terminal.
	Stdin []byte
	// Timeout limits the wall time; 0 means no limit. When it expires, all the command's processes get SIGTERM and,
	// after Grace, SIGKILL.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL; 0 means two seconds.
	Grace time.Duration
	// EndAll kills the processes that the command left running, before the result is sent.
	EndAll bool
	// Head and Tail are how many bytes are kept of the start and end of each stream: 64 KiB each if both are 0, at
	// most 256 MiB.
	Head, Tail int
}

// Output is one captured stream: its first and last bytes, and its total size. If Size is larger than
// len(Head)+len(Tail), the rest was discarded.
type Output struct {
	Head []byte
	Tail []byte
	Size int64
}

// Result is the outcome of a command. A failing command is a Result; an error means that the sandbox failed.
type Result struct {
	// ExitCode is the shell's exit code, or 128 plus the number of the signal that killed it.
	ExitCode int
	// Signal is the name of the signal that killed the shell ("SIGKILL"), or empty.
	Signal string
	Stdout Output
	Stderr Output
	// TimedOut reports that Timeout ended the command, Cancelled that the caller did.
	TimedOut  bool
	Cancelled bool
	// OutOfMemory reports that the kernel killed one of the sandbox's processes for lack of memory while the
	// command ran.
	OutOfMemory bool
	// OutOfDisk reports that the sandbox's processes were killed because its files exceed their limit, while the
	// command ran or since the previous command. Stderr says which limit. Further commands can run in order to
	// remove files; one that makes the excess larger is killed as well.
	OutOfDisk bool
	// Background is the number of the command's processes that were still alive when its shell exited. They keep
	// running until the sandbox closes, unless Command.EndAll is set; their further output is discarded.
	Background int
	Elapsed    time.Duration
}

// Kind is the type of a file.
type Kind string

// KindOther is everything but files, directories and symbolic links.
const (
	KindFile    Kind = "file"
	KindDir     Kind = "dir"
	KindSymlink Kind = "symlink"
	KindOther   Kind = "other"
)

// FileInfo describes one file. Path is absolute, except in a [Tree], where it is relative to the root with forward
// slashes. It consists of the file system's bytes and need not be UTF-8.
type FileInfo struct {
	Path string
	Kind Kind
	Mode fs.FileMode // permission bits only
	Size int64
	// Version is the hex SHA-256 of a regular file's content; empty if it was not computed, as for files larger
	// than 1 GiB.
	Version string
	// Target is what a symbolic link points to, verbatim.
	Target string
}

// ReadOptions limits a read. The zero value reads a whole file of up to 64 MiB.
type ReadOptions struct {
	// Limit is the most bytes to return; 0 means 64 MiB. A longer file is cut there, and its FileInfo has its real
	// size.
	Limit int64
	// NoFollow returns ErrNotRegular if the last element of the path is a symbolic link.
	NoFollow bool
}

// WriteOptions restricts a write. The zero value creates or replaces. An existing file keeps its mode, owner and
// other hard links; symbolic links are followed. Write returns fs.ErrPermission if the command user may not write
// the file.
type WriteOptions struct {
	// IfVersion, if not empty, makes Write return ErrChanged unless the file still has this version.
	IfVersion string
	// Create makes Write return fs.ErrExist if the path exists.
	Create bool
	// Parents creates missing parent directories.
	Parents bool
	// Mode is the mode of a newly created file; 0 means 0o644.
	Mode fs.FileMode
}

// ListOptions limits a listing. The zero value lists one level without hidden files.
type ListOptions struct {
	// Depth is the number of levels to list; 0 means 1.
	Depth int
	// Hidden includes names that begin with a dot.
	Hidden bool
	// Limit is the most entries to return; 0 means 10,000.
	Limit int
}

// Listing is a directory's entries, sorted by path, parents before their children. Truncated reports that Limit cut
// it.
type Listing struct {
	Entries   []FileInfo
	Truncated bool
}

// Query is a search for text in files.
type Query struct {
	// Term is the text to find, or a regular expression (RE2) if Regexp is set.
	Term   string
	Regexp bool
	// Path is the file or directory to search; if empty, the working directory.
	Path string
	// Names, if not empty, are glob patterns of which one must match a file's base name ("*.py").
	Names []string
	// Hidden includes files and directories whose names begin with a dot; .git is never searched.
	Hidden bool
	// Skip lists directories, as absolute paths, that are not searched, unless Path is in them.
	Skip []string
	// MaxMatches is the most matching lines to return; 0 means 1,000. MaxLine is the most bytes to return of one
	// line, around the match; 0 means 400.
	MaxMatches int
	MaxLine    int
}

// Match is one matching line. Line counts from 1.
type Match struct {
	Path string
	Line int
	Text []byte
	// Cut reports that Text is only part of the line.
	Cut bool
}

// Matches is the answer to a Query: the matches in path order, and the totals over all files, even if MaxMatches
// cut the list. Binary files (with a NUL byte in the first 8 KiB) are counted but not searched.
type Matches struct {
	Matches []Match
	Files   int // files with at least one match
	Total   int // matching lines
	Binary  int // binary files that were skipped
	// Unreadable counts files and directories that could not be opened.
	Unreadable int
}

// TreeOptions selects what a Tree contains. The zero value walks everything below the root except entries called
// .git (in a submodule, a file). A regular file that cannot be read has no Version. A directory that cannot be read
// is an entry of KindDir, because its content would otherwise seem to be deleted.
type TreeOptions struct {
	// Limit is the most entries; 0 means 1,000,000. If there are more, the call returns ErrTooLarge.
	Limit int
	// Skip lists paths relative to the root, with forward slashes, that are left out together with everything below
	// them.
	Skip []string
	// Remember keeps the versions, so that later calls for the same root read only files that have changed since. It
	// reads every file itself, except for those that [Client.Remember] has told it. Without Remember, at most 16 GiB
	// of changed files are read, and the others have no Version.
	Remember bool
}

// KnownFile is a regular file that the host has put into the sandbox. Path is relative to the directory that is named
// with it, and Modified is the modification time in whole seconds since 1970.
type KnownFile struct {
	Path     string
	Size     int64
	Modified int64
	Version  string
}

// Hello is the guest's greeting.
type Hello struct {
	Protocol int
	Build    string // identifies the binary, which must be the same as the host's
	UID      int    // of the guest
	// CommandUID and CommandGID are the user and group that commands run as.
	CommandUID, CommandGID int
	Dir                    string
	// Silence is how long the guest waits for a frame before it considers the host dead and ends; 0 means for ever.
	// A Client sends frames often enough.
	Silence time.Duration
	// Space is the capacity of the file system that holds Dir, or of the root file system if Dir does not exist
	// yet.
	Space disk.Space
}

// Overlay merges environments. If a key occurs several times, its last value wins.
func Overlay(lists ...[]string) []string {
	at := map[string]int{}
	var merged []string
	for _, kv := range slices.Concat(lists...) {
		key, _, _ := strings.Cut(kv, "=")
		if i, ok := at[key]; ok {
			merged[i] = kv
			continue
		}
		at[key] = len(merged)
		merged = append(merged, kv)
	}
	return merged
}
