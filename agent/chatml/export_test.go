package chatml

import (
	"testing"

	"deepswe/agent/tokenizer"
	"deepswe/agent/trajectory"
)

// Templates returns a small template for each notation, by its name.
func Templates() map[string]string {
	all := map[string]string{}
	for name, s := range shapes() {
		all[name] = s.template()
	}
	return all
}

// SmallTokens returns a small tokenizer that has all marks as tokens.
func SmallTokens(t testing.TB) *tokenizer.Tokenizer { return tokens(t) }

// Sample returns what a model would sample after a prompt, if whole is the conversation with its reply.
func (c *Codec) Sample(prompt, whole []int32, calls bool) []int32 {
	as := *c
	if !calls {
		as.call = c.answer
	}
	return sampled(&as, prompt, whole)
}

// Reply reads what a model wrote in ordinary text: thoughts, text and, where native is set, calls in Hermes' tags.
func Reply(text string, native bool, turn int) trajectory.Message {
	h := &hand{thought: [2]string{"<think>", "</think>"}, calls: &notations()[0]}
	return h.read(text, native, turn, nil)
}
