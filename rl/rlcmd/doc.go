// Package rlcmd holds the commands about learning: train, export and merge.
//
// Everything that a command touches outside comes in through [Deps]. A command runs once.
package rlcmd
