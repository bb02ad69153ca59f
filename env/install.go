package env

import "context"

// Setup says what is installed for the sandboxes of a repository.
type Setup struct {
	// Commands are run in order, in the repository's directory, as the command user.
	Commands []string
	// Env are variables of the commands, each as KEY=VALUE.
	Env []string
	// Aside are paths that the repository ignores and the sandbox shows. What a set-up changes there is kept; what it
	// changes elsewhere in the repository is not.
	Aside []string
	// Dir is an empty directory on this machine for the result, if the provider keeps that in files.
	Dir string
	// Progress is called as a command begins, and as it downloads; nil calls nothing.
	Progress func(SetupProgress)
}

// SetupProgress is how far a set-up has come.
type SetupProgress struct {
	// Step counts from 1, Command is its command line.
	Step, Steps int
	Command     string
	// Received is how many bytes have come from the network, in all.
	Received int64
	// Refused is the address of a host that the set-up may not reach; empty in every other report.
	Refused string
}

// Installed is the result of a set-up, for later sandboxes of the same repository.
type Installed struct {
	// Dir is the Setup's directory, Image an image of the provider. Only one of them is set, depending on the provider.
	Dir   string `json:"dir,omitempty"`
	Image string `json:"image,omitempty"`
	// Added are the paths below the repository's root that are new. A new directory counts as one path.
	Added []string `json:"added,omitempty"`
	// Restored are the repository's own files that the set-up changed or removed, which later sandboxes do not see.
	Restored []string `json:"restored,omitempty"`
	// Replaced are paths of Setup.Aside that the set-up has replaced, if the provider needs to know them.
	Replaced []string `json:"replaced,omitempty"`
	// Reused is set if the result is that of an earlier set-up.
	Reused bool `json:"-"`
}

// Installer is a provider that can install what a project needs, once, for sandboxes without a network.
type Installer interface {
	Provider
	// Install runs a set-up in a sandbox like that of the Spec. Its commands reach the network only through an HTTP
	// proxy, which refuses connections to this machine and to metadata addresses; without [Capabilities].NetworkOff
	// they reach everything. If a command fails, the error is a [*SetupError].
	Install(ctx context.Context, s Spec, how Setup) (Installed, error)
}

// SetupError says that a command of a set-up failed. The fault is not the sandbox's, so retrying seldom helps.
type SetupError PrepareError

func (e *SetupError) Error() string { return (*PrepareError)(e).describe("set-up") }
