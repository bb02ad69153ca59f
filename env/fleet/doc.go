// Package fleet is what providers share whose sandboxes live where other processes have theirs too, such as a Docker
// daemon or a namespace of a cluster: who owns what there, which owners are alive, and removing what the dead ones left.
package fleet
