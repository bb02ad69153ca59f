// Package tinker trains a policy behind the Tinker HTTP API: SkyRL's server on one's own machines, or a hosted one.
//
// A [Client] speaks the protocol: requests that return a future, and long polls that wait for it. A [Model] is one
// set of weights on the server, with its operations in strict order. A [Trainer] is an rl.Trainer on top of them: it
// evaluates the objective here, from the log-probabilities of a forward pass, and sends the server a loss whose
// gradient is the objective's (see [Loss]).
//
// # What servers get wrong, and what is done about it
//
// Servers accept what they cannot compute: an empty batch hangs, arrays of another length are padded, one NaN reaches
// every model of the server. So everything is checked before it is sent. SkyRL may execute an optim_step before the
// forward_backward that was posted before it, so the future of each operation is awaited before the next kind of
// operation is posted. It divides a gradient by tokens and sequences on some backends and not on others, and only some
// versions recognise a request that is sent twice: a [Probe] on a throw-away model finds out.
//
// A reply that is lost leaves open whether the operation was executed. Where the server recognises repeated requests,
// the request is sent again. Elsewhere the weights are no longer known, and the error wraps [rl.ErrTrainerLost]: the
// last checkpoint is what is known, and to go on from there is the caller's part.
//
// # Sampling
//
// A policy is sampled by the server itself, while its weights do not change, or by [Samplers]: vLLM servers that load
// each version of the adapter. What is sampled is compared with the trainer after each publication.
package tinker
