package guest

// Stage lists the mounts that deepswe makes in new namespaces before it becomes the program of a sandbox. deepswe
// is started with [Arg], --stage FD and that program's command line, and reads the Stage as JSON from the file
// descriptor.
type Stage struct {
	// Shift is the file descriptor of a user namespace that maps the owners of shifted views (idmapped mounts); 0
	// for none.
	Shift int
	// Plain drops all privileges after mounting. It is set if the user namespace exists only for the mounts.
	Plain    bool
	Views    []View
	Overlays []Layers
}

// View mounts a directory read-only at another place. If Shift is set, its owners are mapped, and mounts below it
// are left out.
type View struct {
	From, To string
	Shift    bool
}

// Layers describes an overlay mounted at To: Lower, uppermost directory first, is read-only, Upper receives the writes,
// and Work is an empty directory on the same file system as Upper.
type Layers struct {
	Lower           []string
	Upper, Work, To string
}
