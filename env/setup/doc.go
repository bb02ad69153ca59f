// Package setup installs what a project needs before its sandboxes lose the network: the commands run in a sandbox
// whose only way out is a proxy of ours, and what they leave behind is kept for later sandboxes of the same repository.
package setup
