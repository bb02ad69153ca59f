// Package canary makes tests fail although the code under test is right: one of a test's expectations is changed to a
// wrong one or, if it has none that can be changed, a check is added that cannot hold. If a runner reports such a test
// as passed, the code under test has tampered with the runner.
//
// The package works on text, so that the version of a language does not matter. Tests that it cannot parse stay as they
// are, and the result says why. [ForParser] returns the writer for a log parser of package testlog, and [New] chooses
// the changes. The same source always has the same mutations, so that a known solution can show whether they make the
// tests fail; which one is chosen, and the wrong value, are random.
package canary
