package env

import (
	"context"
	"errors"
	"time"

	"deepswe/env/guest"
)

// Capabilities are the promises that a provider's sandboxes keep on this machine.
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
	// Name is the word of --env: docker, kubernetes, bwrap, host.
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
	Kind     string // container, volume, network, image, pod, lease, directory, process, cgroup
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
	// Layers counts the image's layers that are known so far, Ready those that are complete.
	Layers, Ready int
	// Bytes of Total have been downloaded, over the layers that have to be.
	Bytes, Total int64
	Done         bool
	Err          error
}

// Status is the outcome of a check.
type Status string

// The statuses of a [Finding]. A warning works, but not fully; a skipped check could not be made here.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Finding is the result of one check of what works on this machine.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	// Fix is the command or the setting that solves the problem; empty where there is none.
	Fix string `json:"mend,omitempty"`
}

// Fixer is an error that says how to solve its problem.
type Fixer interface {
	error
	// Fix returns the problem in a few words, and the command or the setting that solves it.
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

// Diagnoser is a provider that can say more about itself than a sandbox of it shows.
type Diagnoser interface {
	Provider
	// Diagnose checks what the provider depends on, such as its daemons.
	Diagnose(ctx context.Context) []Finding
	// Sample returns the spec of a sandbox to check the provider with, which needs nothing that would have to be
	// fetched, and describes it. Where no image has a shell, the spec's image is empty of files, and lacking says why
	// no command can run in it.
	Sample(ctx context.Context) (s Spec, lacking string, err error)
}

// ErrInfrastructure marks infrastructure failures: of the daemon, the guest, the disk. They are never observations and
// never a reward of 0; the layer above retries them or reports them.
var ErrInfrastructure = guest.ErrInfrastructure

// ErrNoSpace says that a file cannot be written because a disk is full.
var ErrNoSpace = guest.ErrNoSpace

// ErrExhausted says that what ran in a sandbox has ended it, by using up the sandbox's own memory or disk. Another try
// would come to the same.
var ErrExhausted = errors.New("the sandbox's limits are exhausted")

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

// Backoff is the longest wait before a retry, counted from 1: first, doubled with every further one, up to longest. How
// much of it is waited is up to the caller, who adds the jitter that fits.
func Backoff(retry int, first, longest time.Duration) time.Duration {
	for ; retry > 1 && first < longest; retry-- {
		first *= 2
		if first <= 0 { // more than a Duration holds
			return longest
		}
	}
	return min(first, longest)
}

// Sleep waits, or returns the context's error when that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
