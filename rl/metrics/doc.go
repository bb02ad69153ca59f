// Package metrics carries the numbers of a training run to where people look at them. A file of JSON lines is the run's
// own record. Everything else is a [Sink], which a [Feed] keeps from stopping or delaying the run: TensorBoard event
// files, a page in Prometheus text format, offline runs of Weights & Biases, and servers of Trackio and MLflow. All are
// written here, by hand: each format is smaller than a dependency.
package metrics
