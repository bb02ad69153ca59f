// Package lab makes experiments with the training loop: ablations, which compare many runs, and simulations, which play
// a run on a cluster that is not there.
package lab
