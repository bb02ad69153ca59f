// Package attempt makes one attempt at a task, from starting a sandbox to a patch on disk: solve makes one, an
// evaluation many.
//
// The order is fixed: start the sandbox, record the repository's state, let the agent work, compute the patch however
// that ended, write the files, remove the sandbox. An [Attempt] is a description and may be run many times, also
// concurrently.
package attempt
