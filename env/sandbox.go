package env

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"deepswe/env/guest"
)

// These types of the guest's protocol are also part of the Sandbox interface.
type (
	Command      = guest.Command
	Result       = guest.Result
	Output       = guest.Output
	FileInfo     = guest.FileInfo
	ReadOptions  = guest.ReadOptions
	WriteOptions = guest.WriteOptions
	ListOptions  = guest.ListOptions
	Listing      = guest.Listing
	Query        = guest.Query
	Matches      = guest.Matches
	Match        = guest.Match
	TreeOptions  = guest.TreeOptions
	KnownFile    = guest.KnownFile
	Kind         = guest.Kind
)

// The kinds of files.
const (
	KindFile    = guest.KindFile
	KindDir     = guest.KindDir
	KindSymlink = guest.KindSymlink
	KindOther   = guest.KindOther
)

// Sandbox is a place where a model's commands run: a container, a set of namespaces, or a scratch directory.
//
// A command that fails is a Result, not an error. An error means that the sandbox could not do what was asked: it
// wraps a sentinel of package guest or io/fs if a file is missing or not as expected, and [ErrInfrastructure] if
// the sandbox itself is unusable. Cancelling the context ends the call and kills everything the call started.
type Sandbox interface {
	// Dir is the absolute path of the repository inside the sandbox.
	Dir() string
	// Run executes a command line in a fresh shell.
	Run(ctx context.Context, c Command) (Result, error)
	// Read returns the content of a regular file, or the part of it that o selects, and its description;
	// FileInfo.Version covers the whole file.
	Read(ctx context.Context, path string, o ReadOptions) ([]byte, FileInfo, error)
	// Write creates or replaces a regular file atomically, and returns its new description.
	Write(ctx context.Context, path string, data []byte, o WriteOptions) (FileInfo, error)
	// List returns a directory's entries.
	List(ctx context.Context, path string, o ListOptions) (Listing, error)
	// Search returns the lines that contain the query's text.
	Search(ctx context.Context, q Query) (Matches, error)
	// Tree describes every file below root, but no directories, with content hashes and sorted by path.
	Tree(ctx context.Context, root string, o TreeOptions) ([]FileInfo, error)
	// Unpack extracts a tar stream, plain or gzipped, below dir. It writes nothing outside dir, whatever names the
	// archive contains.
	Unpack(ctx context.Context, dir string, tar io.Reader) error
	// Ping returns nil if the guest answers.
	Ping(ctx context.Context) error
	// Original returns the content of a file in the image as it was before the agent touched it (see [Origin]). If
	// the repository was copied in, it returns ErrUnsupported, because the originals are in the directory that was
	// copied.
	Original(ctx context.Context, path string) ([]byte, error)
	// Close removes the sandbox and everything in it. It may be called more than once, and runs under its own
	// deadline if ctx has ended.
	Close(ctx context.Context) error
}

// ShellQuote quotes words so that a POSIX shell reads each as one word, byte for byte, and joins them with spaces.
func ShellQuote(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// Origin returns files as they were before the agent touched them, from a place that the agent cannot reach. A
// [Sandbox] is the origin of the files in its image; the origin of a repository that was copied in is the copied
// directory.
type Origin interface {
	// Original returns the content of the file at the path relative to the repository's root, without following a
	// symbolic link, or fs.ErrNotExist if there was no such file.
	Original(ctx context.Context, path string) ([]byte, error)
}

// Limits bound a sandbox. A zero field means the provider's default, which is never "unlimited".
type Limits struct {
	Memory    int64   // bytes, swap included: 4 GiB by default
	CPUs      float64 // 2 by default
	Processes int64   // 512 by default
	// Disk is how many bytes commands may write, and Files how many files they may create: 16 GiB and a million by
	// default. The content of the image or of a copied repository does not count. A /tmp in memory is bounded by
	// Memory instead.
	Disk  int64 `json:",omitzero"`
	Files int64 `json:",omitzero"`
}

// WithDefaults replaces zero fields by those of fallback, and fields that are zero there too by the general
// defaults.
func (l Limits) WithDefaults(fallback Limits) Limits {
	const gib = 1 << 30
	return Limits{
		Memory:    cmp.Or(max(l.Memory, 0), fallback.Memory, 4*gib),
		CPUs:      cmp.Or(max(l.CPUs, 0), fallback.CPUs, 2),
		Processes: cmp.Or(max(l.Processes, 0), fallback.Processes, 512),
		Disk:      cmp.Or(max(l.Disk, 0), fallback.Disk, 16*gib),
		Files:     cmp.Or(max(l.Files, 0), fallback.Files, 1_000_000),
	}
}

// DiskArguments returns the command-line arguments that make a guest enforce the disk limits.
func (l Limits) DiskArguments() []string {
	return []string{"--disk-bytes", strconv.FormatInt(l.Disk, 10), "--disk-files", strconv.FormatInt(l.Files, 10)}
}

// Spec describes the sandbox to start. The zero value is an empty directory without network.
type Spec struct {
	// Image is a container image. Providers without images return ErrUnsupported for a Spec that needs one.
	Image string
	// Dockerfile is a folder with a Dockerfile; the image is built from it if Image is empty. It is built by Start
	// or Prefetch, once for each content of the folder, and the folder is read only once.
	Dockerfile string
	// Recipe adds to Dockerfile. User is the user that commands run as; empty means the image's own.
	Recipe Recipe
	User   string
	// Dir is the repository's absolute path inside the sandbox; /testbed if empty and the provider can choose.
	Dir string
	// CopyIn is a host directory whose content is copied to Dir; empty if the image contains the repository.
	CopyIn string
	// Commit, if not empty, makes CopyIn a git repository of which this commit is copied, without the rest of its history.
	Commit string `json:",omitempty"`
	// Git is a host directory that is copied in place of CopyIn's .git; empty if that is copied itself. If it is set,
	// CopyIn is a directory that somebody works in: what cannot be read is left out, and the copy is writable.
	Git string
	// Without are paths below CopyIn, with forward slashes, that are not copied.
	Without []string
	// Copied, if not nil, is called for every file that is copied in, with its size, possibly from several goroutines.
	Copied func(bytes int64) `json:"-"`
	// Source is the user's directory that CopyIn is, or is a copy of; empty if there is none.
	Source string
	// Checkout, if not nil, replaces CopyIn and Dir. Only an [Overlayer] accepts it.
	Checkout *Checkout
	// Installed is the result of a set-up that an [Installer] has kept for this repository; nil if there was none.
	Installed *Installed
	// Shown are folders of this machine that the sandbox shows as well; a pod has a copy of its own.
	Shown []Shown `json:",omitempty"`
	// Prepare lists command lines that run once, in order, as the guest's own user, after the copy and before
	// anything else. A non-zero exit code makes Start fail. Providers may cache the result for later starts.
	Prepare []string
	Limits  Limits
	// Network allows access to the network.
	Network bool
	// Env is added to the image's environment for commands, as "KEY=value".
	Env []string
	// Grading is set if the sandbox is for grading finished work. Where room is short, it is started before others.
	Grading bool `json:",omitzero"`
	// Run and Rollout identify the caller in labels and messages.
	Run     string
	Rollout string
}

// Shown is a folder of this machine in a sandbox. Its path there belongs to nothing else. Without Host, it is an empty
// folder in place of what the sandbox would have there. It may be inside of a folder that is shown before it.
type Shown struct {
	Host, Path string
	// Writable is for a sandbox that fills the folder. What is written without Host ends with the sandbox.
	Writable bool `json:",omitempty"`
}

// Fills reports whether the sandbox fills folders of this machine.
func (s Spec) Fills() bool {
	return slices.ContainsFunc(s.Shown, func(f Shown) bool { return f.Writable && f.Host != "" })
}

// GuestSandbox is a Sandbox that talks to a guest through its client; all providers return one.
type GuestSandbox struct {
	*guest.Client
	remove func(ctx context.Context) error

	once sync.Once
	err  error
}

var _ Sandbox = (*GuestSandbox)(nil)

// NewGuestSandbox returns a sandbox that uses the client. Close closes the client and then calls remove once,
// unless it is nil, with a context that has not ended; remove has to set its own deadline.
func NewGuestSandbox(client *guest.Client, remove func(ctx context.Context) error) *GuestSandbox {
	return &GuestSandbox{Client: client, remove: remove}
}

// Original returns ErrUnsupported; providers with images override it.
func (s *GuestSandbox) Original(_ context.Context, path string) ([]byte, error) {
	return nil, fmt.Errorf("original %s: %w: it has no image to read it from", path, ErrUnsupported)
}

// Close closes the client and removes the sandbox. Concurrent calls all wait for that and return the same error.
func (s *GuestSandbox) Close(ctx context.Context) error {
	s.once.Do(func() {
		s.err = s.Client.Close()
		if s.remove != nil {
			s.err = errors.Join(s.err, s.remove(context.WithoutCancel(ctx)))
		}
	})
	return s.err
}

// CheckedForImage returns the spec of a sandbox that is started from an image, with Dir cleaned. It returns
// [ErrUnsupported] if Dir is not absolute, CopyIn is not a directory, or an entry of Env is not KEY=value.
func (s Spec) CheckedForImage() (Spec, error) {
	if !path.IsAbs(s.Dir) || strings.ContainsRune(s.Dir, 0) {
		return s, fmt.Errorf("%w: the repository's path in the image must be absolute: %q", ErrUnsupported, s.Dir)
	}
	s.Dir = path.Clean(s.Dir)
	if s.CopyIn != "" {
		info, err := os.Stat(s.CopyIn)
		if err != nil {
			return s, fmt.Errorf("copy in: %w", err)
		}
		if !info.IsDir() {
			return s, fmt.Errorf("%w: copy in %s: it is not a directory", ErrUnsupported, s.CopyIn)
		}
	}
	for _, kv := range s.Env {
		if key, _, ok := strings.Cut(kv, "="); !ok || key == "" || strings.ContainsRune(kv, 0) {
			return s, fmt.Errorf("%w: environment entry %q is not KEY=value", ErrUnsupported, kv)
		}
	}
	return s, nil
}
