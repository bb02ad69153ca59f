package agent

import "deepswe/tools"

// budget tracks how much of the context the conversation takes. What the server has counted is exact; what came after
// its last count is estimated from its length, on the safe side for code and prose. Digits can take three times as
// much: where an estimate was too low, the server says so.
type budget struct {
	context  int // tokens; 0 is unknown
	prompted int // tokens of the longest prompt that the server has counted
	counted  int // tokens of all that the server has counted
	pending  int // bytes of what it has not
}

const (
	// bytesPerToken is low for code (3 to 4) and for prose (4 to 5), and about right for other scripts.
	bytesPerToken = 3
	// messageOverhead is what a chat template adds to a message, in bytes.
	messageOverhead = 8 * bytesPerToken
	// warnAt is the share of the usable context, in percent, at which the model is asked to submit.
	warnAt = 90
	// slack is what a bound on a reply leaves free, in tokens, for errors of the estimate.
	slack = 64
)

// add counts messages that the server has not seen.
func (b *budget) add(messages ...Message) {
	for _, m := range messages {
		b.pending += messageOverhead + len(m.Content) + len(m.Reasoning) + len(m.Name)
		for _, c := range m.ToolCalls {
			b.pending += messageOverhead + len(c.Name) + len(c.Arguments)
		}
	}
}

// addTools counts what the server writes into the prompt about the tools.
func (b *budget) addTools(specs []tools.Spec) {
	for _, s := range specs {
		b.pending += messageOverhead + len(s.Name) + len(s.Description) + len(s.Parameters)
	}
}

// replied counts a reply. The server's own count replaces all estimates. A prompt never shrinks, so a smaller count, of
// a server that leaves out what it had cached, is ignored.
func (b *budget) replied(r Reply) {
	if r.Usage.Prompt > 0 {
		b.prompted = max(b.prompted, r.Usage.Prompt)
		b.counted, b.pending = b.prompted+r.Usage.Completion, 0
		return
	}
	b.add(r.Message)
}

// prompt is how many tokens the next request takes, as far as is known.
func (b *budget) prompt() int { return b.counted + (b.pending+bytesPerToken-1)/bytesPerToken }

// reserve is what must be left for a reply, so that the model can still submit.
func (b *budget) reserve() int { return min(4096, b.context/8) }

// full reports whether the context has no room for another reply.
func (b *budget) full() bool { return b.context > 0 && b.prompt()+b.reserve() > b.context }

// nearlyFull reports whether the model should finish.
func (b *budget) nearlyFull() bool {
	return b.context > 0 && b.prompt()*100 >= (b.context-b.reserve())*warnAt
}

// usable is how many tokens of the context a prompt may take.
func (b *budget) usable() int { return b.context - b.reserve() }

// above reports whether the prompt takes more than so many percent of what it may.
func (b *budget) above(percent int) bool {
	return b.context > 0 && b.prompt()*100 > b.usable()*percent
}

// shrink adjusts the count after the messages became shorter, in bytes: no server has counted them yet, but it has
// counted what they were.
func (b *budget) shrink(before, after int) {
	b.counted = b.prompt() * after / max(before, 1)
	b.prompted, b.pending = 0, 0
}

// room is how many bytes of observation still fit, and false where the context is unknown.
func (b *budget) room() (bytes int, bounded bool) {
	if b.context <= 0 {
		return 0, false
	}
	return max(0, b.context-b.reserve()-b.prompt()) * bytesPerToken, true
}

// left is how many tokens the next reply may take; 0 is unknown.
func (b *budget) left() int {
	if b.context <= 0 {
		return 0
	}
	return max(b.context-b.prompt()-slack, 1)
}
