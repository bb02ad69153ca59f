// Package local starts sandboxes without images on the machine that deepswe runs on: [Host] only makes a scratch
// copy of a directory, [Bwrap] adds namespaces around such a copy, with the host's programs read-only.
//
// The package works on Linux only; elsewhere its constructors return an error. Providers are safe for concurrent
// use.
package local

import (
	"log/slog"
	"time"

	"deepswe/env"
)

// Options configure the sandboxes. The zero value works.
type Options struct {
	// Scratch is where scratch directories are created; if empty, the system's temporary directory.
	Scratch string
	// Limits replace zero limits of a spec. Where they are zero as well, the defaults of env.Limits apply.
	Limits env.Limits
	// Log receives warnings; nil discards them.
	Log *slog.Logger
}

// Timeouts, far above what is ever needed unless something is wrong.
const (
	startTimeout  = 30 * time.Second
	removeTimeout = 20 * time.Second
	probeTimeout  = time.Minute
)
