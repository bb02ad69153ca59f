// Package chatml writes conversations in tokens, with a model's own chat template (package jinja) and tokenizer, and
// parses the models' replies. It is for samplers that take token ids. A conversation can grow in tokens: sampled tokens
// stay as they are, and only new messages are encoded.
//
// Everything in this package is safe for concurrent use.
package chatml
