package tinker

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"deepswe/agent"
	"deepswe/env/disk"
)

// conversations remember the ids of answers as they were sampled, so that the next prompt of a conversation begins with
// exactly those: a text that is tokenised again may become others, and then its row ends there.
type conversations struct {
	next    int64
	entries map[[sha256.Size]byte]*conversation
	// order is that of use, the oldest first.
	order [][sha256.Size]byte
	held  int // ids
}

// conversation is one as it was after an answer.
type conversation struct {
	number int64
	// ids are all of it, the answer's included; answer is where that begins.
	ids    []int32
	answer int
}

// maxHeld bounds the ids that are remembered: 256 MB of them. A conversation that was forgotten is rendered anew.
const maxHeld = 64 << 20

// prompt renders a request, from where an answer of the same conversation ended if it is known. number is that of the
// conversation, by which servers find the cache of its beginning.
func (s *Sampler) prompt(r agent.Request) (ids []int32, number int64, err error) {
	last := len(r.Messages) - 1
	for last >= 0 && r.Messages[last].Role != agent.RoleAssistant {
		last--
	}
	s.mu.Lock()
	found := s.known.take(r, last+1)
	if found == nil {
		s.known.next++
		number = s.known.next
	}
	s.mu.Unlock()
	if found == nil {
		ids, err = s.renderer.Render(r)
		return ids, number, err
	}
	after := r
	after.Messages = r.Messages[last+1:]
	more, err := s.renderer.Continue(found.ids[found.answer:], after)
	return slices.Concat(found.ids, more), found.number, err
}

// remember keeps what a conversation is after an answer.
func (s *Sampler) remember(r agent.Request, answer agent.Message, prompt, sampled []int32, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Messages = append(slices.Clone(r.Messages), answer)
	s.known.add(keyOf(r, len(r.Messages)), &conversation{
		number: number, ids: slices.Concat(prompt, sampled), answer: len(prompt),
	})
}

// take returns the conversation whose first n messages are those of a request. It stays: attempts of a group may
// share a beginning.
func (k *conversations) take(r agent.Request, n int) *conversation {
	if n == 0 || k.entries == nil {
		return nil
	}
	return k.entries[keyOf(r, n)]
}

func (k *conversations) add(key [sha256.Size]byte, c *conversation) {
	if k.entries == nil {
		k.entries = map[[sha256.Size]byte]*conversation{}
	}
	if old := k.entries[key]; old != nil {
		k.held -= len(old.ids)
		k.order = slices.DeleteFunc(k.order, func(o [sha256.Size]byte) bool { return o == key })
	}
	k.entries[key] = c
	k.order = append(k.order, key)
	for k.held += len(c.ids); k.held > maxHeld && len(k.order) > 1; {
		k.held -= len(k.entries[k.order[0]].ids)
		delete(k.entries, k.order[0])
		k.order = k.order[1:]
	}
}

// keyOf identifies the first n messages of a request and the tools that it offers.
func keyOf(r agent.Request, n int) [sha256.Size]byte {
	var b bytes.Buffer
	for _, part := range []any{r.Tools, r.Messages[:n]} {
		// What does not encode, broken arguments included, is a string here.
		_ = disk.EncodeJSON(&b, part)
	}
	return sha256.Sum256(b.Bytes())
}
