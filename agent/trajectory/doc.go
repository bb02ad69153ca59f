// Package trajectory is the vocabulary of a conversation (messages, calls, replies, tokens, stop reasons) and its
// records: an append-only event log while a rollout runs, an ATIF v1.7 document (Agent Trajectory Interchange Format)
// when it is done, and the way back from either to what the model said.
//
// The event log is the source of truth. It keeps every message exactly as it was sent and every reply exactly as it
// came, so that a killed rollout can resume from it and a document can be made from it at any time. Nothing in it is
// ever rendered again.
//
// A [Writer] is safe for concurrent use; everything else is plain data.
package trajectory
