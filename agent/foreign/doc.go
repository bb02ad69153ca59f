// Package foreign plays rollouts with agents that are not ours, unchanged, in a sandbox without a network.
//
// A [Recipe] says how such an agent is installed, configured and started; it is data. [Install] installs it once, and
// sandboxes show the result read-only. A [Player] starts it there, and answers its calls of the model at a port of the
// sandbox's own loopback, which the guest's stream carries: the gateway.
//
// The gateway speaks what agents speak (chat completions, Anthropic's messages, Responses), each read into the same
// canonical request. A tree of the rollout's conversations finds the reply that a request continues. The model is then
// asked to continue the recorded tokens, whatever the agent made of them, and a request that was answered before gets
// the same answer. Each conversation is a chain of calls, and becomes a row in training.
package foreign
