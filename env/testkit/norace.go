//go:build !race

package testkit

// UnderRace reports whether the race detector is on.
const UnderRace = false
