package trainertest

import "slices"

// Speech lets a server have the ids of a real tokenizer, so that a client with a chat template can speak to it. Its
// policy says the words of its language, and what it says next depends on its answer so far and on nothing before it.
type Speech struct {
	// Words are the ids of the language's words, in its order.
	Words []int32
	// Before is the last id before an answer, as the template writes it, and End the id that ends one.
	Before, End int32
	// Size is the number of ids.
	Size int
}

// The marks of a policy, as offsets from the last word of its language.
const (
	markEnd     = 0
	markAnswer  = 3
	markUnknown = 4
)

// read returns the policy's ids. Other ids, and invalid ones, become the id of an unknown word.
func (s *Speech) read(ids []int32) []int32 {
	if s == nil {
		return ids
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		at := slices.Index(s.Words, id)
		switch {
		case at >= 0:
		case id == s.End:
			at = len(s.Words) + markEnd
		case id == s.Before:
			at = len(s.Words) + markAnswer
		default:
			at = len(s.Words) + markUnknown
		}
		out[i] = int32(at)
	}
	return out
}

// write returns the tokenizer's ids of an answer.
func (s *Speech) write(ids []int32) []int32 {
	if s == nil {
		return ids
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = s.End
		if int(id) < len(s.Words) {
			out[i] = s.Words[id]
		}
	}
	return out
}
