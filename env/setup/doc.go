// Package setup installs a project's dependencies before its sandboxes lose the network. The commands run in a sandbox
// whose only way to the network is a proxy, and what they install is kept for later sandboxes of the same repository.
package setup
