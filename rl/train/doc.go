// Package train is the learning loop: sample tasks, play groups of rollouts, turn rewards into advantages and rows,
// update the policy, publish it, evaluate it periodically, and resume after being killed.
//
// [Start] makes a run of a configuration. build.go opens what is to be learned from, then the directory, and makes the
// values that the run consists of: what follows does not see the configuration. loop.go takes the steps. What they
// learn from is a course: practice (practice.go), which is supplied with rollouts and updates the policy with them,
// or imitation. The arithmetic is in package rl, the scheduling in agent/run.
package train
