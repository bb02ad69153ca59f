// Package inside is the program that runs inside a sandbox: it executes commands and reads, writes and searches files
// for the host at the other end of a stream. Package guest has the protocol.
//
// The program owns everything it starts: when the stream ends, it kills all of that, and itself. It runs on Linux, and
// uses the standard library only, because it is carried into every container.
package inside
