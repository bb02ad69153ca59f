// Package disk keeps deepswe's files: files replaced atomically, logs of JSON lines that survive a kill, locks
// between processes, and scratch directories whose names identify their process, so that the next process can
// remove what a killed one left behind.
//
// Its functions are safe for concurrent use, by several processes as well.
package disk
