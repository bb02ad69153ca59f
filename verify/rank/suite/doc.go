// Package suite compares candidates by running tests: the repository's own that pass on the base (regression tests),
// and tests that an agent wrote for the issue, on the base alone (reproduction tests).
//
// A [Script] is what runs in a sandbox, and holds many tests. [Runner.Base] runs it on the base and keeps the tests
// that behave as they claim; [Runner.Run] runs it on a candidate, through the strict trial of package verify, because
// candidates cheat here as well. [Filter] then drops tests that tell no two candidates apart, and toxic ones.
package suite
