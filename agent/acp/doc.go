// Package acp speaks the Agent Client Protocol, version 1, to an editor over two streams: JSON-RPC 2.0, a message a
// line. A session is a run, and a prompt begins or continues it. A [Host] knows what a run is.
package acp
