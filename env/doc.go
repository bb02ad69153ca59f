// Package env defines a [Task] to solve, the [Sandbox] that an agent works in, and the [Provider] that starts
// sandboxes.
//
// Each provider is a folder below this one (docker, local, kubernetes) and a line in the provider table of
// agent/cli; everything above depends on this package only. Sandboxes and providers are safe for concurrent use.
package env
