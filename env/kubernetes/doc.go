// Package kubernetes starts sandboxes as pods, in one or several namespaces and clusters.
//
// It needs no operator, image, port or registry of its own: a Role in a namespace is enough. A [Provider] and its
// sandboxes are safe for concurrent use.
//
// # A sandbox
//
// A pod has one container of the task's image, whose first process is the guest. An init container copies the guest
// from a guest image, or else the guest is sent through the image's shell. The host talks to it over one stream for the
// whole life of the sandbox: an exec that starts a bridge, which passes its standard input and output to the guest. (An
// attach to the first process would not do: its output goes through the node's log, and is lost when the kubelet
// restarts.) If a stream breaks, another continues where it ended (see [guest.Line]), so that no call fails when the
// kubelet or the API server restarts.
//
// The network is closed before the first command: the guest or the init container deletes the pod's interface and then
// drops the privilege to do so. If the namespace forbids that, a NetworkPolicy has to close the network; the guest
// checks that nothing answers, and otherwise the start fails.
//
// # Objects in a namespace
//
//	label deepswe.owner          the provider: machine.pid.start time.nonce, see [fleet.Owner]
//	label deepswe.kind           sandbox, original, pull
//	label deepswe.network        off, on: what a NetworkPolicy selects
//	annotation deepswe.run       Spec.Run
//	annotation deepswe.rollout   Spec.Rollout
//	annotation deepswe.host      the owner's host name, for people
//
// Each of these removes a pod whose owner is dead, independently of the others:
//
//   - The guest ends when the host closes the line, and when it has received nothing from the host for five minutes.
//   - The provider's Lease owns its pods, and the pod that the provider runs in, if any, owns the Lease: the cluster
//     deletes what an object owns together with it.
//   - The Lease is renewed every thirty seconds. The next provider's first start, and [Provider.Reap], delete what
//     belongs to dead processes of this machine, and to owners elsewhere whose Lease is stale. In the first
//     hour, they look twice, because an outage of the API server makes every Lease stale.
//   - activeDeadlineSeconds ends a pod that nothing else has ended.
package kubernetes
