package guest

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"deepswe/env/disk"
)

// Errors that cross the wire and keep their identity for [errors.Is]. Besides these, the errors of package fs
// (ErrNotExist, ErrExist, ErrPermission, ErrInvalid) do so too. ErrInvalid is for requests that can never be answered:
// a broken pattern, a name that is too long or has a NUL byte, symbolic links in a circle.
var (
	// ErrChanged refuses a write because the file is not what the writer last read.
	ErrChanged = errors.New("file changed since it was read")
	// ErrIsDirectory and ErrNotDirectory refuse a verb on the wrong kind of file.
	ErrIsDirectory  = errors.New("is a directory")
	ErrNotDirectory = errors.New("not a directory")
	// ErrNotRegular refuses to read or write devices, sockets and pipes: they may block for ever.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge refuses what would not fit into the limits of the request.
	ErrTooLarge = errors.New("too large")
	// ErrNoSpace says that a disk is full: the sandbox's own, or the machine's.
	ErrNoSpace = errors.New("no space left on the disk")
	// ErrClosed says that the guest is gone: every call of its client fails with it, and with ErrInfrastructure.
	ErrClosed = errors.New("guest is gone")
	// ErrInfrastructure marks the failures that are the sandbox's, and not those of a command or a file.
	ErrInfrastructure = errors.New("sandbox failed")
)

// Command is one command line for a fresh shell. The zero value of every field but Line is useful.
type Command struct {
	// Line is handed to Shell with -c, byte for byte.
	Line string
	// Shell is the interpreter, by path or by a name in the sandbox's PATH: bash where there is one, else sh, when empty.
	Shell string
	// Dir is the working directory: the one that the guest was started for, when empty.
	Dir string
	// Env is added to the sandbox's environment, as "KEY=value".
	Env []string
	// Stdin is the command's standard input: empty, never the terminal.
	Stdin []byte
	// Timeout is the longest wall time; 0 is no limit. When it passes, the whole process tree gets SIGTERM and, Grace
	// later, SIGKILL.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL: two seconds when 0.
	Grace time.Duration
	// EndAll ends the processes that the command has left running, before the result is sent.
	EndAll bool
	// Head and Tail are how many bytes of each stream's beginning and end are kept: 64 KiB each when both are 0, and
	// never more than 256 MiB.
	Head, Tail int
}

// Output is one captured stream: its first and last bytes, and how many there were. When Size is larger than
// len(Head)+len(Tail), the difference was discarded while it was read.
type Output struct {
	Head []byte
	Tail []byte
	Size int64
}

// Result is the outcome of a command. A command that fails is a Result; an error means that the sandbox failed.
type Result struct {
	// ExitCode is the shell's exit code, or 128 plus the number of the signal that ended it.
	ExitCode int
	// Signal is the name of the signal that ended the shell ("SIGKILL"), else empty.
	Signal string
	Stdout Output
	Stderr Output
	// TimedOut is set when the limit ended the command, Cancelled when the caller did.
	TimedOut  bool
	Cancelled bool
	// OutOfMemory is set when the kernel killed a process of the sandbox for memory while the command ran.
	OutOfMemory bool
	// OutOfDisk is set when the sandbox's processes were ended because its files exceed their limit: while the command
	// ran, or before, when no command was there to report it. Stderr says what was exceeded. Commands can still be run, to
	// remove files; what makes more of them ends as well.
	OutOfDisk bool
	// Background is the number of processes of this command that were still alive after its shell had exited. They go
	// on until the sandbox closes, unless Command.EndAll is set; what they print from then on is discarded.
	Background int
	Elapsed    time.Duration
}

// Kind says what a directory entry is.
type Kind string

// The kinds of files. Everything that is neither file, directory nor symbolic link is KindOther.
const (
	KindFile    Kind = "file"
	KindDir     Kind = "dir"
	KindSymlink Kind = "symlink"
	KindOther   Kind = "other"
)

// FileInfo describes one file. Path is absolute, except in a [Tree], where it is relative to the root with forward
// slashes; its bytes are the file system's and need not be UTF-8.
type FileInfo struct {
	Path string
	Kind Kind
	Mode fs.FileMode // permission bits only
	Size int64
	// Version identifies the content: the hex SHA-256 of a regular file. Empty where it was not computed, which is so
	// for files of more than 1 GiB.
	Version string
	// Target is where a symbolic link points, verbatim.
	Target string
}

// ReadOptions bounds a read. The zero value reads a whole file of at most 64 MiB.
type ReadOptions struct {
	// Limit is the most bytes returned: 64 MiB when 0. A longer file is returned up to the limit, and its FileInfo
	// has the real size.
	Limit int64
	// NoFollow refuses a path whose last element is a symbolic link, with ErrNotRegular.
	NoFollow bool
}

// WriteOptions guards a write. The zero value creates or replaces. An existing file keeps its mode, its owner and its
// other hard links, and symbolic links stay links. A file that the command user may not write is refused with
// fs.ErrPermission.
type WriteOptions struct {
	// IfVersion, when not empty, refuses with ErrChanged unless the file still has this version.
	IfVersion string
	// Create refuses with fs.ErrExist when the path exists already.
	Create bool
	// Parents creates missing parent directories.
	Parents bool
	// Mode is the mode of a file that is created: 0o644 when 0. An existing file keeps its own.
	Mode fs.FileMode
}

// ListOptions bounds a listing. The zero value lists one level without hidden files.
type ListOptions struct {
	// Depth is how many levels are listed: 1 when 0.
	Depth int
	// Hidden includes names that begin with a dot.
	Hidden bool
	// Limit is the most entries returned: 10,000 when 0.
	Limit int
}

// Listing is a directory's entries, sorted by path, parents before their children. Truncated is set when Limit cut it.
type Listing struct {
	Entries   []FileInfo
	Truncated bool
}

// Query is a search for text in files.
type Query struct {
	// Term is the text to find; a regular expression (RE2) when Regexp is set.
	Term   string
	Regexp bool
	// Path is a file or a directory: the working directory when empty.
	Path string
	// Names, when not empty, are glob patterns for base names, one of which must match ("*.py").
	Names []string
	// Hidden includes files and directories whose names begin with a dot; .git is never searched.
	Hidden bool
	// Skip are directories, absolute paths, that a search from above does not enter.
	Skip []string
	// MaxMatches is the most matching lines returned: 1,000 when 0. MaxLine is the most bytes of one line that are
	// returned, around the match: 400 when 0.
	MaxMatches int
	MaxLine    int
}

// Match is one matching line. Line counts from 1.
type Match struct {
	Path string
	Line int
	Text []byte
	// Cut is set when Text is a part of a longer line.
	Cut bool
}

// Matches is the answer to a Query: the matches in path order, and the totals over all files, also where MaxMatches
// cut the list. Binary files (a NUL byte in the first 8 KiB) are skipped and counted.
type Matches struct {
	Matches []Match
	Files   int // files with at least one match
	Total   int // matching lines
	Binary  int // binary files that were skipped
	// Unreadable counts files and directories that could not be opened.
	Unreadable int
}

// TreeOptions says what a Tree holds. The zero value walks everything below the root except what is named .git: a
// directory, or in submodules a file. A regular file that cannot be read has no Version. A directory that cannot be
// read is an entry itself, as a KindDir: otherwise its content would seem to be deleted.
type TreeOptions struct {
	// Limit is the most entries: 1,000,000 when 0; beyond it the call fails with ErrTooLarge.
	Limit int
	// Skip are paths relative to the root, with forward slashes, that are left out with everything below them.
	Skip []string
}

// Hello is what a guest says first.
type Hello struct {
	Protocol int
	Build    string // identifies the binary; a mismatch with the host's is an error
	PID      int
	UID, GID int // of the guest
	// CommandUID and CommandGID are whom commands run as.
	CommandUID, CommandGID int
	Dir                    string
	Arch                   string
	// Silence is how long the guest waits for a frame from the host before it takes the host for dead and ends; 0 is for
	// ever. A Client sends frames often enough.
	Silence time.Duration
	// Space is how much room the file system of Dir has, or of the root where Dir is still to be made.
	Space disk.Space
}

// Overlay joins environments; of several values for a key the last one counts.
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
