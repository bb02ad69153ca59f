// Package docker starts sandboxes as Docker containers, on one or several daemons.
//
// A container's first process is the guest, reached over its attached standard input and output; the daemon is not used
// to execute commands. A [Provider] and its sandboxes are safe for concurrent use.
//
// # Objects on a daemon
//
// Several processes, also on different machines, may share a daemon. Everything that they create there has labels, so
// that any other process can remove what belongs to a dead one:
//
//	deepswe.owner     the provider: machine/pid/start time/nonce, where machine is a hash of boot and PID namespace
//	deepswe.host      its host name, for people
//	deepswe.kind      sandbox, prepare, original, lease, fill, guest
//	deepswe.run       Spec.Run
//	deepswe.rollout   Spec.Rollout
//	deepswe.created   Unix seconds
//
// Labels cannot be changed, so an owner shows in another way that it is still alive, by its lease:
//
//   - A sandbox is a container that is removed when its guest ends, and the guest ends when its connection is closed.
//     So a killed process leaves only containers that had not been started yet.
//   - Each provider has one container, never started, that is its lease: a file in it is touched every thirty seconds.
//     Owners on other machines are judged by their lease, owners on this machine by their process. The lease also keeps
//     the guest's volume in use.
//   - The volume deepswe-guest-HASH contains the guest's binary. It is kept for later runs while a lease refers to it.
//   - Images named deepswe-prepared result from running Spec.Prepare on a task's image (label deepswe.prepared; label
//     deepswe.user is the original image's User). Images named deepswe-built were built from a Spec.Dockerfile (label
//     deepswe.built). They are kept, within Options.ImageBudget.
//
// Filling the guest's volume and preparing an image must be done by only one of all processes. The lock is the name of
// a container, because a daemon gives each name to only one. Such a container is removed if its owner is dead.
//
// The first start of the next provider, and [Provider.Reap], remove what dead owners left behind.
package docker
