// Package record is what a training run leaves on disk: its directory, the journals of its rollouts, and the tasks that
// it has learned from. The loop writes it; export, view and the pages read it.
package record
