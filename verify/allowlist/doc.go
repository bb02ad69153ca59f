// Package allowlist decides which files of a patch the strict trial of package verify takes.
//
// A fix consists of sources and of the data that they load. Files that decide which tests run, how they run, and what
// the runner consists of are no evidence of a fix: tests, configuration, build files, metadata of installed packages,
// bytecode, shared objects, third-party code, and modules that hide others that the runner imports. What counts is
// whether a file can affect the runner, not whether it is new.
//
// The functions are pure: the caller reads the files from the sandbox. They may be called concurrently, and take time
// linear in the size of their input.
package allowlist
