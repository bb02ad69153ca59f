// Package prompt holds prompt packs: the system and instance prompts of a rollout, in YAML with the reference agent's
// keys, so that the file that a checkpoint was trained with can be loaded unchanged.
//
// A [Pack] is never changed; everything here may be used concurrently.
package prompt
