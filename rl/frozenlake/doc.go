// Package frozenlake is a small text game that proves the learning loop: a player crosses a frozen lake to a goal, in
// turns of a chat, and is rewarded only for arriving.
//
// A map, an episode and every slip follow from a seed, so a task is a number and a rollout can be repeated. A [Map] is
// never changed and may be shared, an [Episode] belongs to one goroutine, and a [Player] may play many episodes at
// once.
package frozenlake
