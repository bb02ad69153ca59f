// Package repo is the host's side of a repository: the snapshot that a sandbox starts from, the patch that comes out of
// it, and the application of that patch to the user's tree.
//
// It runs the git command of the host, and only on directories that are the user's own or that it made itself. Nothing
// that a sandbox wrote is executed, and no hook, filter, fsmonitor or attribute of a repository has any effect. Its
// values are safe for concurrent use unless they say otherwise.
package repo
