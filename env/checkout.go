package env

import "context"

// Checkout is a host directory that a sandbox shows as its repository, at the same path and without copying it: the
// sandbox only reads the directory and keeps what its commands write in a layer of its own. Paths below Root are
// relative, with forward slashes.
type Checkout struct {
	// Root is the directory's absolute path, with all symbolic links resolved.
	Root string
	// Links are other paths by which the host reaches Root; in the sandbox they are symbolic links to it.
	Links []string
	// Git is the directory that is copied into the sandbox in place of Root's .git; empty if Root has no .git.
	Git string
	// Objects are git object stores on the host that the repository in Git borrows objects from; mounted read-only.
	Objects []string
	// Hidden are paths below Root that commands must not see.
	Hidden []string
	// Shown are other host directories and files that the repository refers to; mounted read-only at their own paths.
	Shown []string
}

// Overlayer is a provider that can, on some machines, start a Spec with a Checkout.
type Overlayer interface {
	Provider
	// CanOverlay returns nil if a sandbox can show root as a Checkout, and otherwise the reason why it cannot.
	CanOverlay(ctx context.Context, root string) error
}
