// Package metrics carries the numbers of a training run to where people look at them: JSON lines, TensorBoard event
// files, a page in Prometheus text format and a Trackio server. All are written here, by hand: each format is smaller
// than a dependency. Sinks are safe for concurrent use.
package metrics
