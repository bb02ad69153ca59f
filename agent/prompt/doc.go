// Package prompt implements prompt packs: the system and instance prompts of a rollout, in YAML with the reference
// agent's keys, so that the file with which a checkpoint was trained can be loaded unchanged.
//
// A [Pack] is immutable; everything here is safe for concurrent use.
package prompt
