// Package guest is the protocol between the host and the program that runs inside a sandbox, and the host's client.
//
// The same binary is executed again in the container with [Arg] as its first argument; package inside is what it does
// then. It serves framed requests that arrive on standard input and answers on standard output, many at once over the
// one stream. It knows verbs only: run, read, write, list, search, tree, unpack, ping. What a tool is, and what a model
// gets to see, is decided on the host, so that a prompt can change without touching a container.
//
// [Client] and [Server] are the two ends of the stream. Both are safe for concurrent use.
//
// The package uses the standard library only: what it links is carried into every container.
package guest

// Arg is the first argument that turns the deepswe binary into a guest.
const Arg = "guest-serve"
