package env

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"deepswe/env/guest"
)

// Capabilities lists what a provider's sandboxes guarantee on this machine.
type Capabilities struct {
	Images        bool // starts container images
	Isolated      bool // the host's files cannot be reached
	NetworkOff    bool // Spec.Network false is enforced
	MemoryLimit   bool
	CPULimit      bool
	ProcessLimit  bool
	DiskLimit     bool
	SeparateUser  bool // commands run as another user than the guest
	HostToolchain bool // commands see the host's own programs
}

// Provider starts sandboxes.
type Provider interface {
	// Name is the provider's value of --env: docker, kubernetes, bwrap or host.
	Name() string
	Capabilities() Capabilities
	// Start returns a ready sandbox. If it fails, it leaves nothing behind.
	Start(ctx context.Context, s Spec) (Sandbox, error)
	// Prefetch fetches or builds ahead of time what Start will need for the spec, such as its image. Calling it is
	// optional. A provider with nothing to prefetch returns nil at once.
	Prefetch(ctx context.Context, s Spec) error
	// Reap removes what dead owners left behind, and returns what it removed (with o.DryRun: what it would remove).
	Reap(ctx context.Context, o ReapOptions) ([]Leftover, error)
	// Close releases the provider's own resources; callers close their sandboxes.
	Close() error
}

// ReapOptions selects what to reap. The zero value removes what dead owners left behind.
type ReapOptions struct {
	DryRun bool
	// All also removes what belongs to living owners.
	All bool
	// Stale is how long an owner on another machine may be silent before it counts as dead; 0 means 2 minutes.
	Stale time.Duration
}

// Leftover is one thing that outlived its owner.
type Leftover struct {
	Provider string `json:"provider"`
	// Kind is container, volume, network, image, pod, lease, directory, process, cgroup or set-up.
	Kind    string        `json:"kind"`
	ID      string        `json:"id"`
	Run     string        `json:"run,omitempty"`
	Rollout string        `json:"rollout,omitempty"`
	Owner   string        `json:"owner,omitempty"`
	Age     time.Duration `json:"-"`
}

// Action is what a provider is doing with an image, or that it waits for room.
type Action string

// The actions that Progress reports.
const (
	Pulling  Action = "pull"
	Building Action = "build"
	// Waiting means that there is no room: Layers sandboxes wait, and Ready run. It has no Image.
	Waiting Action = "wait"
)

// Progress describes the pull or build of one image. Providers report it through a func(Progress) given to them
// when they are opened; it is called from several goroutines and must not block. The last report about an image has
// Done set, and Err if it failed.
type Progress struct {
	Action Action
	// Host is the machine that the image is pulled to or built on. Image is its reference, or the folder that it is
	// built from.
	Host  string
	Image string
	// Layers is the number of layers known so far; Ready is how many of them are complete.
	Layers, Ready int
	// Bytes have been downloaded, of Total in the layers that are not there yet.
	Bytes, Total int64
	Done         bool
	Err          error
}

// Status is the outcome of a check.
type Status string

// The statuses of a [Finding]: Warning means that it works with restrictions, Skipped that it could not be checked
// here.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Finding is the result of one check of the machine.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	// Fix is the command or setting that solves the problem; empty if there is none.
	Fix string `json:"mend,omitempty"`
}

// Fixer is an error that knows how to solve its problem.
type Fixer interface {
	error
	// Fix returns the problem in a few words, and the command or setting that solves it.
	Fix() (problem, fix string)
}

// FindingOf turns an error into the finding of a failed check.
func FindingOf(check string, err error) Finding {
	f := Finding{Check: check, Status: Failed, Detail: err.Error()}
	if known, ok := errors.AsType[Fixer](err); ok {
		f.Detail, f.Fix = known.Fix()
	}
	return f
}

// Diagnoser is a provider that can check more than whether its sandboxes work.
type Diagnoser interface {
	Provider
	// Diagnose checks what the provider depends on, such as its daemons.
	Diagnose(ctx context.Context) []Finding
	// Sample returns the spec of a sandbox for testing the provider without fetching anything, and its description.
	// If no local image has a shell, the spec names an empty image, and lacking says why no command can run in it.
	Sample(ctx context.Context) (s Spec, lacking string, err error)
}

// ErrInfrastructure marks infrastructure failures: of the daemon, the guest or the disk. Callers retry or report
// them; they are never shown to the model as observations and never count as a reward of 0.
var ErrInfrastructure = guest.ErrInfrastructure

// ErrNoSpace reports that a file cannot be written because a disk is full.
var ErrNoSpace = guest.ErrNoSpace

// ErrExhausted reports that the sandbox ended because its commands used up its memory or disk. Retrying would end
// the same way.
var ErrExhausted = errors.New("the sandbox's limits are exhausted")

// IsInfrastructure reports whether err means that the sandbox is broken or that ctx has ended, rather than that a
// file is not as expected. An error that commands in an intact sandbox are not known to cause counts as a broken
// one's.
func IsInfrastructure(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	if ctx.Err() != nil || errors.Is(err, ErrInfrastructure) {
		return true
	}
	return !slices.ContainsFunc([]error{
		fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid, guest.ErrNotDirectory, guest.ErrIsDirectory,
		guest.ErrNotRegular, guest.ErrTooLarge, guest.ErrChanged, ErrNoSpace,
	}, func(known error) bool { return errors.Is(err, known) })
}

// ErrUnsupported reports that a provider cannot do what a Spec asks for; the message says what it can do instead.
var ErrUnsupported = errors.New("not supported by this sandbox")

// ErrNoImage reports that an image neither exists locally nor can be pulled. Retrying does not help.
var ErrNoImage = errors.New("image not found")

// Backoff returns the upper bound of the wait before a retry, counted from 1: it starts at first and doubles each
// time, up to longest. Adding jitter is left to the caller.
func Backoff(retry int, first, longest time.Duration) time.Duration {
	for ; retry > 1 && first < longest; retry-- {
		first *= 2
		if first <= 0 { // overflow
			return longest
		}
	}
	return min(first, longest)
}

// Sleep waits for d, or returns the context's error if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
