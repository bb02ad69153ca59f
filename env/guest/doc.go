// Package guest is the protocol between the host and the program that runs inside a sandbox (the guest), and the
// host's client.
//
// Inside a container, deepswe executes its own binary again with [Arg] as the first argument; package inside is what it
// does then. The guest reads framed requests from standard input and writes answers to standard output, many at a time
// over one stream. It only knows verbs, such as run, read, write, list, search and tree. What a tool is, and what a
// model sees, is decided on the host, so that a prompt can change without changing a container.
//
// [Client] and [Server] are the two ends of the stream. Both are safe for concurrent use.
//
// The package imports only the standard library and package disk, because it is part of the program in every container.
package guest

// Arg is the first argument that makes the deepswe binary run as a guest.
const Arg = "guest-serve"

// MostThreads is the most threads that a guest uses. A limit on processes counts them as well.
const MostThreads = 40

// Exit codes of a guest that could not close the network. The provider looks for them in the pod's status.
const (
	ExitNetworkStays = 71 // the interfaces cannot be removed
	ExitNetworkOpen  = 72 // no network policy blocks outgoing connections
)
