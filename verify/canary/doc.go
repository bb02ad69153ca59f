// Package canary makes twins of tests: tests of the same shape, in the same files, that must fail. A runner that
// reports one of them as passed has been tampered with by the code under test.
//
// It works on text, for files of any version of a language: what it cannot read has no twins, with a reason. For a log
// parser of package testlog, [ForParser] has the writer, and [Plant] makes the twins. What is changed in a test is the
// same every time, so that whether it makes the test fail can be tried with a known solution; names and places are
// random.
package canary
