// Package recipe writes what starts a training run with its servers: for Docker Compose, Slurm and Kubernetes.
package recipe
