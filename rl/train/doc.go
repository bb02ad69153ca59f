// Package train is the learning loop: sample tasks, play groups of rollouts, turn rewards into advantages and rows,
// update the policy, publish it, evaluate it periodically, and resume after being killed.
//
// [Load] reads a configuration, and [Start] makes a run of it in a directory, or many runs for an ablation. What is
// learned and by which trainer is joined by a configuration's [Parts]: an [Environment] has tasks and plays them, a
// trainer holds the weights. The arithmetic is in package rl, the scheduling in agent/run.
package train
