// Package dataset reads tasks: SWE-bench, R2E-Gym and SWE-smith records, Harbor task folders, and deepswe's own
// JSON lines, which README.md describes.
//
// Files are read record by record, so that they may be larger than memory. This package decides what the agent may
// know and what only the grader may know, and generates the commands that keep the latter out of the agent's
// sandbox; it does not run them. A sequence must be used by one goroutine; several may be read concurrently.
package dataset
