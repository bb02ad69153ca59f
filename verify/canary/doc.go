// Package canary makes twins of tests: copies of tests, in the same files, that must fail. If a runner reports a twin
// as passed, the code under test has tampered with the runner.
//
// The package works on text, so that the version of a language does not matter. Tests that it cannot parse get no
// twins, and the result says why. [ForParser] returns the writer for a log parser of package testlog, and [Plant] makes
// the twins. The same source always gives the same mutations, so that a known solution can show whether they make the
// tests fail; names and positions are random.
package canary
