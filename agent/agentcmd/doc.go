// Package agentcmd holds the commands about one rollout (solve, replay and view) and about
// this machine (doctor and clean).
//
// Everything that a command touches outside comes in through [Deps]. A command runs once.
package agentcmd
