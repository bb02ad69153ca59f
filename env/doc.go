// Package env holds what is to be fixed and where that happens: a [Task], the [Sandbox] that it is fixed in, and the
// [Provider] that starts sandboxes.
//
// A provider is one folder below this one (docker, local) and one line in the table of agent/cli: the layers above know
// this vocabulary only. A Sandbox and a Provider are safe for concurrent use.
package env
