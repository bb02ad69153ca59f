package env

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

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
	// Unpack extracts a tar stream below dir. Nothing is written outside dir, whatever the names in it say.
	Unpack(ctx context.Context, dir string, tar io.Reader) error
	// Ping answers when the guest is alive.
	Ping(ctx context.Context) error
	// Original returns the content of a file of the image as it was before the agent touched it (see [Origin]). A
	// sandbox whose repository was copied in answers ErrUnsupported: the originals are where it was copied from.
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

// Capabilities are the promises that a provider's sandboxes keep on this machine.
type Capabilities struct {
	Images        bool // starts container images
	Isolated      bool // the host's files cannot be reached
	NetworkOff    bool // Spec.Network false is enforced
	MemoryLimit   bool
	CPULimit      bool
	ProcessLimit  bool
	SeparateUser  bool // commands run as another user than the guest
	HostToolchain bool // commands see the host's own programs
}

// Provider starts sandboxes.
type Provider interface {
	// Name is the word of --env: docker, bwrap, host.
	Name() string
	Capabilities() Capabilities
	// Start returns a ready sandbox, or cleans up after itself.
	Start(ctx context.Context, s Spec) (Sandbox, error)
	// Prefetch makes ready ahead of time what a Start of the spec will need, such as its image. It is never required
	// before a Start. A provider that has nothing to make ready returns nil at once.
	Prefetch(ctx context.Context, s Spec) error
	// Reap removes what dead owners left and returns what it removed (or would remove, when o.DryRun is set).
	Reap(ctx context.Context, o ReapOptions) ([]Leftover, error)
	// Close releases the provider's own resources; callers close their sandboxes.
	Close() error
}

// ReapOptions chooses what to reap. The zero value removes what dead owners left.
type ReapOptions struct {
	DryRun bool
	// All removes living owners' things too.
	All bool
	// Stale is how long an owner on another machine may be silent before it counts as dead: 2 minutes when 0.
	Stale time.Duration
}

// Leftover is one thing that outlived its owner.
type Leftover struct {
	Provider string
	Kind     string // container, volume, network, image, directory, process, cgroup
	ID       string
	Run      string
	Rollout  string
	Owner    string
	Age      time.Duration
}

// Action is what a provider does with an image.
type Action string

// The actions that Progress reports.
const (
	Pulling  Action = "pull"
	Building Action = "build"
)

// Progress is how far the pull or the build of an image has come. A provider is given a func(Progress) when it is
// opened, calls it from several goroutines, and expects it not to block. The last report about an image is Done, with
// Err when it failed.
type Progress struct {
	Action Action
	// Host is the machine that the image is brought to, Image its reference, or the folder that it is built from.
	Host  string
	Image string
	// Layers counts the layers of the image that are known of, Ready those that are complete.
	Layers, Ready int
	// Bytes of Total have been downloaded, over the layers that have to be.
	Bytes, Total int64
	Done         bool
	Err          error
}

// ErrInfrastructure marks infrastructure failures: of the daemon, the guest, the disk. They are never observations and
// never a reward of 0; the layer above retries them or reports them.
var ErrInfrastructure = errors.New("sandbox failed")

// IsInfrastructure reports whether an error of a sandbox means that it is broken or that the caller has given up, as
// opposed to a file or a program that is not as expected.
func IsInfrastructure(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, ErrInfrastructure) || errors.Is(err, guest.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// ErrUnsupported says that a provider cannot do what a Spec asks; the message says what can.
var ErrUnsupported = errors.New("not supported by this sandbox")

// ErrNoImage says that an image neither exists locally nor can be pulled from its registry. Retrying does not help.
var ErrNoImage = errors.New("image not found")
