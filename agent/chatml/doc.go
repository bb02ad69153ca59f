// Package chatml writes conversations as the chat templates of Qwen's models do, and reads what the models wrote back.
// It is for samplers that take token ids and know no template, and it lets a conversation grow in tokens: what was
// sampled stays as it was sampled, and only new messages are written out.
//
// Everything here may be used concurrently.
package chatml
