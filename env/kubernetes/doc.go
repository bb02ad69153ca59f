// Package kubernetes starts sandboxes as pods, in one namespace of a cluster or in several.
//
// It takes no operator, no image of its own, no port and no registry: a Role in a namespace is enough. A [Provider] and
// its sandboxes are safe for concurrent use.
//
// # A sandbox
//
// A pod has one container of the task's image, whose first process is the guest. The guest comes with an init container
// from a guest image, or is sent through the image's shell. The host reaches it over one stream for the whole life of
// the sandbox: an exec that starts a bridge, which hands its standard input and output over to the guest. (What the
// first process itself would print is kept in the node's log, and is lost to the host when the kubelet restarts.) When
// a stream breaks, another goes on where it ended, see [guest.Line]: restarts of the kubelet and of the API server
// interrupt no call.
//
// The network is closed before the first command: the guest, or the init container, removes the pod's interface and
// gives the right to do so up. Where the namespace forbids that, a NetworkPolicy has to close it, and the guest makes
// sure that nothing answers; else the start is refused.
//
// # What is in a namespace
//
//	label deepswe.owner          the provider: machine.pid.start time.nonce, see package owner
//	label deepswe.kind           sandbox, original
//	label deepswe.network        off, on: what a NetworkPolicy selects
//	annotation deepswe.run       Spec.Run
//	annotation deepswe.rollout   Spec.Rollout
//	annotation deepswe.host      the owner's host name, for people
//
// Several things remove a pod whose owner is dead, each by itself:
//
//   - The guest ends when the host hangs up, and when it has heard nothing of it for five minutes.
//   - Every pod belongs to the provider's Lease, and the Lease to the pod that the provider runs in, if any: the
//
// cluster     collects what belongs to something that is gone.
//   - The Lease is renewed every thirty seconds. The first start of the next provider, and [Provider.Reap], remove what
//     belongs to dead processes of this machine, and to owners elsewhere whose Lease is stale.
//   - activeDeadlineSeconds ends a pod that nothing else has ended.
package kubernetes
