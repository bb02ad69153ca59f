package env

import "context"

// Checkout is a directory of the host that a sandbox shows as its repository, at the same path, without a copy: what
// commands write there goes to the sandbox's own layer, and the host's directory is only read. Paths below Root are
// relative, with forward slashes.
type Checkout struct {
	// Root is the directory, without symbolic links in its path.
	Root string
	// Links are further paths of Root on the host, which become symbolic links to it.
	Links []string
	// Git is a directory whose copy takes the place of what is called .git in Root; empty where there is none.
	Git string
	// Objects are the host's stores of git objects that the repository in Git borrows from, read-only.
	Objects []string
	// Hidden are the paths below Root that commands do not see.
	Hidden []string
	// Shown are further directories of the host that the repository refers to, visible read-only at their own paths.
	Shown []string
}

// Overlayer is a provider that may be able to start a Spec with a Checkout.
type Overlayer interface {
	Provider
	// CanOverlay returns nil when a sandbox can show the directory as a Checkout, and else why it cannot.
	CanOverlay(ctx context.Context, root string) error
}
