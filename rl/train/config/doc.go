// Package config is the configuration of a training run: reading it, filling in defaults, checking it, and writing all
// of it. [Load] reads one; the environments and trainers that it may name are its [Parts].
package config
