package guest

// Stage is what the host's own program mounts in fresh namespaces before it becomes the program of a sandbox. It is
// started with [Arg], --stage FD and that program's command line; the Stage is read as JSON from the descriptor.
type Stage struct {
	// Shift is the number of a descriptor of a user namespace, through which the views show other owners; 0 for none.
	Shift int
	// Plain gives up every privilege after the mounts. It is set in a user namespace that only the mounts need.
	Plain    bool
	Views    []View
	Overlays []Layers
	// Binds come last, so that they may show what is mounted by then.
	Binds []View
}

// View shows a directory read-only at another place, without what is mounted below it when its owners are shifted.
type View struct {
	From, To string
	Shift    bool
}

// Layers are an overlay: Lower is only read, Upper takes what is written to To. Work is an empty directory beside
// Upper.
type Layers struct{ Lower, Upper, Work, To string }
