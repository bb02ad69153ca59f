// Package repo is the host's side of a repository: the snapshot that a sandbox starts from, the patch that comes out of
// it, and putting that patch into the user's tree.
//
// It runs the git command of the host, and only ever on directories that are the user's own or that it made itself;
// nothing that a sandbox wrote is executed, and no hook, filter, fsmonitor or attribute of a repository has a say. Its
// values are safe for concurrent use unless they say otherwise.
package repo
