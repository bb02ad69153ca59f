// Package witness watches test runners from inside their processes. Its programs for Python and Node are loaded by the
// interpreter before anything else. They record how the process ended, and whether the functions that decide about
// tests were replaced.
//
// The record is a second line of defence. Code in the runner's process can forge it, just as it can forge what the
// runner prints. A secret in the record would not prevent that, because the process that writes the secret is the one
// that must not know it.
package witness
