// Package trajectory defines the types of a conversation (messages, calls, replies, tokens, stop reasons) and its
// records: an append-only event log during a rollout, an ATIF v1.7 document (Agent Trajectory Interchange Format)
// after it, and functions that restore the conversation from either.
//
// The event log is the source of truth. It contains every message exactly as it was sent and every reply exactly as
// it was received, so that a killed rollout can be resumed from it and a document can be created from it at any
// time. Its content is never rendered again.
//
// A [Writer] is safe for concurrent use; everything else is plain data.
package trajectory
