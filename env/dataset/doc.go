// Package dataset reads tasks: the records of SWE-bench, SWE-rebench, R2E-Gym, SWE-smith and others, Harbor task
// folders, and deepswe's own JSON lines. README.md describes them.
//
// Files are read record by record, so that they may be larger than memory. This package decides what the agent may
// know and what only the grader may know, and generates the commands that keep the latter out of the agent's
// sandbox; it does not run them. A sequence must be used by one goroutine; several may be read concurrently.
package dataset
