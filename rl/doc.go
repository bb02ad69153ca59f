// Package rl is the arithmetic of learning from rollouts: groups, advantages, filtering, token rows and the loss; and
// the interface of trainers.
//
// It reads and writes no files, starts no containers and calls no models. Functions may be called concurrently and
// never keep their arguments.
package rl
