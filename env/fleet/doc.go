// Package fleet has what providers share whose sandboxes live among those of other processes, such as on a Docker
// daemon or in a namespace of a cluster: it tells who owns what there and whether the owner is alive, removes what
// dead owners left, and chooses the place for the next sandbox.
package fleet
