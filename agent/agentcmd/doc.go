// Package agentcmd holds deepswe without a command, and the commands about one rollout (solve, acp, runs, apply,
// branch, pr, undo, replay and view) and about this machine (config, doctor and clean).
//
// Everything that a command touches outside comes in through [Deps]. A command runs once.
package agentcmd
