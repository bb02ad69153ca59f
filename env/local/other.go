//go:build !linux

package local

import (
	"errors"
	"fmt"

	"deepswe/env"
)

// Host needs Linux: see NewHost.
type Host struct{ env.Provider }

// Bwrap needs Linux: see NewBwrap.
type Bwrap struct{ env.Provider }

var errLinux = errors.New("local sandboxes need Linux: use --env docker")

// NewHost fails on this platform.
func NewHost(Options) (*Host, error) { return nil, fmt.Errorf("host sandboxes: %w", errLinux) }

// NewBwrap fails on this platform.
func NewBwrap(Options) (*Bwrap, error) { return nil, fmt.Errorf("bwrap sandboxes: %w", errLinux) }
