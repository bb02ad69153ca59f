// Package rl is the arithmetic of learning from rollouts: groups, advantages, filtering, token rows and the loss; and
// what a trainer of the policy has to do.
//
// It reads and writes no file, starts no container and calls no model. Functions may be called concurrently and never
// keep what they are given.
package rl
