// Package cli contains what all commands share: input and output, exit codes, the user's configuration, the screen
// with its live lines, JSON lines, run IDs and directories, groups of flags, and the table of sandboxes behind
// --env.
//
// A command package declares its own flags and texts and takes everything else from here. This package decides
// nothing about tasks, patches, rewards or learning, and keeps no state.
package cli
