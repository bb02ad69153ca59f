// Package docker starts sandboxes as Docker containers, on one daemon or on several.
//
// A container's first process is the guest, reached over its attached standard input and output; nothing is executed
// through the daemon once it runs. A [Provider] and its sandboxes are safe for concurrent use.
//
// # What is on a daemon
//
// Several processes, on several machines, may use one daemon. What each of them has there carries labels, and any other
// process may remove what belongs to a dead one:
//
//	deepswe.owner     the provider: machine/pid/start time/nonce, where machine is a hash of boot and PID namespace
//	deepswe.host      its host name, for people
//	deepswe.kind      sandbox, prepare, original, lease, fill, guest
//	deepswe.run       Spec.Run
//	deepswe.rollout   Spec.Rollout
//	deepswe.created   Unix seconds
//
// Labels cannot be changed, so the sign that an owner is still alive is its lease:
//
//   - Sandboxes are containers that remove themselves when their guest ends, and the guest ends when its connection
//     closes. So a process that is killed leaves only containers that had not been started yet.
//   - One container per provider, never started, is its lease: a file in it is touched every thirty seconds. Owners on
//     other machines are judged by their lease, owners on this machine by their process. The lease also keeps the
//     guest's volume in use.
//   - The volume deepswe-guest-HASH holds the guest's binary. It stays for the next run, until no lease refers to it.
//   - Images named deepswe-prepared were made of a task's image by Spec.Prepare (label deepswe.prepared, and the
//     image's User in deepswe.user), images named deepswe-built were built from a Spec.Dockerfile (label
//     deepswe.built). They stay, within Options.ImageBudget.
//
// Work that must be done once among all processes is done under the name of a container, which a daemon gives to one
// only: filling the guest's volume, and preparing an image. A container with that name whose owner is dead is removed.
//
// What a dead owner left is removed by the first start of the next provider, and by [Provider.Reap].
package docker
