// Package part is what a training run is made of: an environment, which has tasks and plays them, a trainer, which
// holds the weights, and what both need from the world outside of the run.
package part
