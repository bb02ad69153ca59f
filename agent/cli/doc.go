// Package cli is what all commands share: the world that they work in, exit codes, the user's configuration, the screen
// with its live lines, JSON lines, run ids and directories, groups of flags, and the table of sandboxes behind --env.
//
// A command package declares its own flags and words and takes everything else from here. Nothing in this package
// decides anything about tasks, patches, rewards or learning, and it keeps no state.
package cli
