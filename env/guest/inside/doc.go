// Package inside is the program that runs inside a sandbox (the guest). It executes commands and reads, writes and
// searches files for the host at the other end of a stream. Package guest contains the protocol.
//
// The guest owns everything it starts: when the stream ends, it kills all of it, and then itself. It runs on Linux
// only, and imports only the standard library and packages guest and disk, because it becomes part of every container.
package inside
