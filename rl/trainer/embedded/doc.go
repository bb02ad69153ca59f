// Package embedded is a policy that needs neither a GPU nor Python: a small network over tokens with a real softmax,
// sampled through agent.Model and trained through rl.Trainer like the large ones behind HTTP.
//
// It exists so that the whole learning loop runs, learns and is tested anywhere. Its ids and log-probabilities are
// exact, and everything follows from seeds: the same calls give the same bits, however many goroutines do the work.
//
// The model that Publish returns may be called from many goroutines, also while the weights change; it keeps answering
// with the weights that it was published with. The calls of rl.Trainer are made one at a time.
package embedded
