// Package dataset reads tasks: SWE-bench records, R2E-Gym records, SWE-smith records, Harbor task folders, and the JSON
// lines of deepswe itself, which README.md describes.
//
// Everything is a stream: a file of ten gigabytes is read record by record. This package decides what the agent may
// know and what only the grader may know, and makes the commands that keep the latter out of the agent's sandbox. It
// starts nothing. A sequence is used by one goroutine; several may be read at once.
package dataset
