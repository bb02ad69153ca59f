// Package allowlist decides which files of a patch the strict trial of package verify takes.
//
// A fix is made of sources and of the data that they load. What decides which tests run, how they are run and what
// the runner itself is made of is not evidence of a fix: tests, configuration, build files, metadata of installed
// packages, bytecode, shared objects, third-party code, and modules with the names of others that the runner imports.
// The decision is by what can reach the runner. That a file is new is no reason to withhold it.
//
// The package only computes, on what the caller has read from the sandbox. Its functions may be called concurrently,
// and take time linear in the bytes that they are given.
package allowlist
