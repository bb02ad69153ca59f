// Package backend has the trainers that a configuration can name: the embedded policy, a Tinker server, and one that
// writes rows for another trainer.
package backend
