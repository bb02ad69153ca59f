// Package repo handles repositories on the host: the snapshot that a sandbox starts from, the patch that comes out of
// it, and applying that patch to the user's tree.
//
// It runs the host's git, only on directories that belong to the user or that it created itself. It executes nothing
// that a sandbox wrote, and no hook, filter, fsmonitor or attribute of a repository has any effect. Its
// values are safe for concurrent use unless they say otherwise.
package repo
