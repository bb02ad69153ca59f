// Package dataset reads tasks: SWE-bench records, R2E-Gym records, SWE-smith records, Harbor task folders, and the JSON
// lines of deepswe itself, which README.md describes.
//
// Everything is a stream: a file of ten gigabytes is read record by record. What the agent may know and what only the
// grader may know is told apart here, and the commands that keep the second out of the agent's sandbox are made here.
// It starts nothing. A sequence is used by one goroutine; several may be read at once.
package dataset
