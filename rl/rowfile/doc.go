// Package rowfile reads and writes the files of reinforcement learning: rollouts.jsonl, which any harness can write,
// and what is made of it for trainers: rows.jsonl, groups for an Atropos server, and data for fine-tuning.
//
// encoding/json would do for all of it but the arrays of numbers, which are nearly all of a file; they have a codec of
// their own that is several times faster. Batches are exported in two passes over the files and need not fit into
// memory. Functions may be called concurrently; a [Source] belongs to one goroutine at a time.
package rowfile
