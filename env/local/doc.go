// Package local starts sandboxes on the machine that deepswe runs on, without images: [Host] is a scratch copy of a
// directory and nothing more, [Bwrap] puts namespaces around such a copy, with the host's own programs read-only
// inside.
//
// The package works on Linux only; elsewhere its constructors say so. Providers are safe for concurrent use.
package local

import (
	"log/slog"
	"time"

	"deepswe/env"
)

// Options say how sandboxes are started. The zero value is useful.
type Options struct {
	// Scratch is where scratch directories are made: the system's directory for temporary files when empty.
	Scratch string
	// Limits are those of a sandbox whose spec names none; a zero field takes the general default.
	Limits env.Limits
	// Log gets warnings; nil discards them.
	Log *slog.Logger
}

// Limits on waiting. They bound what goes wrong; nothing comes near them otherwise.
const (
	startTimeout  = 30 * time.Second
	removeTimeout = 20 * time.Second
	probeTimeout  = 10 * time.Second
)
