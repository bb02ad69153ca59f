// Package fleet is what providers share whose sandboxes live where other processes have theirs too, such as a Docker
// daemon or a namespace of a cluster: who owns what there and is alive, what the dead ones left, and which of several
// places takes the next sandbox.
package fleet
