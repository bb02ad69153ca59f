package env

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"

	"deepswe/env/guest"
)

// The words of the guest's protocol are the words of a sandbox.
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
	Kind         = guest.Kind
)

// The kinds of files.
const (
	KindFile    = guest.KindFile
	KindDir     = guest.KindDir
	KindSymlink = guest.KindSymlink
	KindOther   = guest.KindOther
)

// Sandbox is one place where a model's commands run: a container, a set of namespaces, or a scratch directory.
//
// A failing command is a Result. An error means that the sandbox could not do what was asked: the sentinels of package
// guest and of io/fs for a file that is not there or not as expected, [ErrInfrastructure] for everything that makes
// the sandbox itself useless. A cancelled context ends the call and kills what it started.
type Sandbox interface {
	// Dir is the absolute path of the repository inside the sandbox.
	Dir() string
	// Run executes a command line in a fresh shell.
	Run(ctx context.Context, c Command) (Result, error)
	// Read returns a regular file's bytes and its description; the Version is that of the whole file.
	Read(ctx context.Context, path string, o ReadOptions) ([]byte, FileInfo, error)
	// Write replaces or creates a regular file, whole or not at all, and returns its new description.
	Write(ctx context.Context, path string, data []byte, o WriteOptions) (FileInfo, error)
	// List returns a directory's entries.
	List(ctx context.Context, path string, o ListOptions) (Listing, error)
	// Search returns the lines that contain a text.
	Search(ctx context.Context, q Query) (Matches, error)
	// Tree describes every file below root, directories left out, with content hashes; sorted by path.
	Tree(ctx context.Context, root string, o TreeOptions) ([]FileInfo, error)
	// Unpack extracts a tar stream, which may be compressed with gzip, below dir. Nothing is written outside dir,
	// whatever the names in it say.
	Unpack(ctx context.Context, dir string, tar io.Reader) error
	// Ping answers when the guest is alive.
	Ping(ctx context.Context) error
	// Original returns the content of a file of the image as it was before the agent touched it (see [Origin]). A sandbox
	// whose repository was copied in answers ErrUnsupported: the originals are in the directory that it was copied from.
	Original(ctx context.Context, path string) ([]byte, error)
	// Close removes the sandbox and everything in it. It may be called more than once. It works on its own deadline
	// when ctx is already done.
	Close(ctx context.Context) error
}

// ShellQuote writes words for a command line, so that a POSIX shell reads each as one word, byte for byte.
func ShellQuote(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// Origin gives files as they were before the agent touched them, from a place that the agent cannot reach. A [Sandbox]
// is the origin of the files in its image; for a repository that was copied in, it is whatever was copied.
type Origin interface {
	// Original returns the content of the file at the path relative to the repository's root. A symbolic link is not
	// followed. fs.ErrNotExist when there was no such file.
	Original(ctx context.Context, path string) ([]byte, error)
}

// Limits bound a sandbox. Zero fields take the provider's defaults, which are never "unlimited".
type Limits struct {
	Memory    int64   // bytes, swap included: 4 GiB by default
	CPUs      float64 // 2 by default
	Processes int64   // 512 by default
	// Disk is what commands may write, in bytes, and Files how many files they may make: 16 GiB and a million by default.
	// What an image or a copied repository has from the start does not count. Where /tmp is in memory, Memory bounds it.
	Disk  int64 `json:",omitzero"`
	Files int64 `json:",omitzero"`
}

// WithDefaults returns the limits with what fallback says, or else the general defaults, in place of zeros.
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

// DiskArguments are what the limits on the disk are for a guest, which enforces them.
func (l Limits) DiskArguments() []string {
	return []string{"--disk-bytes", strconv.FormatInt(l.Disk, 10), "--disk-files", strconv.FormatInt(l.Files, 10)}
}

// Spec says what to start. The zero value is a sandbox without network over an empty directory.
type Spec struct {
	// Image is a container image. Providers without images refuse a Spec that needs one.
	Image string
	// Dockerfile is a folder with a Dockerfile to build the image from, where Image is empty. The provider builds it
	// when Start or Prefetch needs it, once for each content of the folder, and reads the folder only once.
	Dockerfile string
	// Dir is the repository's absolute path inside: /testbed when empty, where the provider can choose.
	Dir string
	// CopyIn is a host directory whose content is copied to Dir; empty where the image has the repository already.
	CopyIn string
	// Source is the user's directory that CopyIn is a copy of; empty where there is none.
	Source string
	// Checkout, where it is set, is the repository in place of CopyIn and Dir. Only an [Overlayer] takes one.
	Checkout *Checkout
	// Prepare are command lines run once, in order, after the copy and before anybody else uses the sandbox, as the
	// guest's own user. A non-zero exit fails the start. Providers may keep the outcome for the next start.
	Prepare []string
	Limits  Limits
	// Network opens the network. The default is none.
	Network bool
	// Env is the environment of commands, as "KEY=value", beside the image's.
	Env []string
	// Run and Rollout name the owner for labels and for messages.
	Run     string
	Rollout string
}

// GuestSandbox is a Sandbox behind a guest: what every provider hands out. Its calls are those of the client.
type GuestSandbox struct {
	*guest.Client
	remove func(ctx context.Context) error

	once   sync.Once
	closed chan struct{}
	err    error
}

var _ Sandbox = (*GuestSandbox)(nil)

// NewGuestSandbox returns the sandbox that the client talks to. Close hangs up and then calls remove, once, with a
// context that is not done yet; remove has its own deadline and may be nil.
func NewGuestSandbox(client *guest.Client, remove func(ctx context.Context) error) *GuestSandbox {
	return &GuestSandbox{Client: client, remove: remove, closed: make(chan struct{})}
}

// Original answers ErrUnsupported: only a provider of images can do better.
func (s *GuestSandbox) Original(_ context.Context, path string) ([]byte, error) {
	return nil, fmt.Errorf("original %s: %w: it has no image to read it from", path, ErrUnsupported)
}

// Close hangs up and removes the sandbox. Every call, also one that comes while another is at it, returns when that is
// done, with the same error.
func (s *GuestSandbox) Close(ctx context.Context) error {
	s.once.Do(func() {
		defer close(s.closed)
		s.err = s.Client.Close()
		if s.remove != nil {
			s.err = errors.Join(s.err, s.remove(context.WithoutCancel(ctx)))
		}
	})
	<-s.closed
	return s.err
}

// CheckedForImage returns the spec of a sandbox that is made from an image, with a clean Dir. It refuses with
// [ErrUnsupported] a Dir that is not absolute, a CopyIn that is not a directory, and an entry of Env that is not
// KEY=value.
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
