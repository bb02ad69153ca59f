// Package tinker trains a policy behind the Tinker HTTP API: SkyRL's server on one's own machines, or a hosted one.
//
// A [Client] speaks the protocol: requests that return a future, and long polls that wait for it. A [Model] is one
// set of weights on the server, with its operations in strict order. A [Trainer] is an rl.Trainer on top of them: it
// evaluates the objective itself, from the log-probabilities of a forward pass, and sends the server a loss whose
// gradient is the objective's (see [Loss]).
//
// # What servers get wrong, and what is done about it
//
// Servers accept what they cannot compute: an empty batch hangs, arrays of another length are padded, one NaN reaches
// every model of the server. So everything is checked before it is sent. SkyRL may execute an optim_step before the
// forward_backward that was posted before it, so the future of each operation is awaited before the next kind of
// operation is posted. Some of its backends divide a gradient by tokens and sequences, and only some versions recognise
// a request that is sent twice: a [Probe] with a temporary model finds out.
//
// If a response is lost, it is not known whether the operation was executed. If the server recognises repeated
// requests, the request is sent again. Otherwise the state of the weights is unknown, and the error wraps
// [rl.ErrTrainerLost]; the caller can resume from the last checkpoint.
//
// # Sampling
//
// A policy is sampled by the server itself, while its weights do not change, or by [Samplers]: vLLM servers that load
// each version of the adapter. What is sampled is compared with the trainer after each publication.
package tinker
