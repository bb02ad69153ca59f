// Package disk is how deepswe keeps files: files that are replaced whole or not at all, logs of JSON lines that survive
// a kill, locks between processes, and scratch directories whose names say which process made them, so that the next
// process can remove what a killed one left.
//
// Its functions are safe for concurrent use, also by several processes.
package disk
