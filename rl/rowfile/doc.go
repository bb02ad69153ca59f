// Package rowfile reads and writes the files of reinforcement learning: rollouts.jsonl, which any harness can
// write, and what trainers read: rows.jsonl, groups for an Atropos server, and data for fine-tuning.
//
// Arrays of numbers, which make up nearly all of such a file, have a codec of their own that is several times
// faster than encoding/json. Exporting reads the files twice, so that a batch need not fit into memory. Functions
// are safe for concurrent use; a [Source] must be used by one goroutine at a time.
package rowfile
