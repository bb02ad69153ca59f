// Package games has environments that are played within milliseconds and need no sandbox: frozenlake, and residue,
// which shows whether a trainer trains at all.
package games
