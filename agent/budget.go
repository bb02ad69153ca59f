package agent

import "deepswe/tools"

// budget tracks how much of the context the conversation takes. Everything up to the server's last token count is
// exact; what was added since is estimated from its length, too high rather than too low for code and prose. Digits
// can take three times as much; if an estimate is too low, the server reports that the context is full.
type budget struct {
	context  int // in tokens; 0 means unknown
	prompted int // tokens of the longest prompt that the server has counted
	counted  int // tokens of everything that the server has counted
	pending  int // bytes that it has not counted yet
}

const (
	// bytesPerToken is low for code (3 to 4) and prose (4 to 5), and about right for other scripts.
	bytesPerToken = 3
	// messageOverhead is what a chat template adds to each message, in bytes.
	messageOverhead = 8 * bytesPerToken
	// warnAt is the percentage of the usable context at which the model is asked to submit.
	warnAt = 90
	// slack is how many tokens a limit on a reply leaves free for errors of the estimate.
	slack = 64
)

// add counts messages that the server has not counted yet.
func (b *budget) add(messages ...Message) {
	for _, m := range messages {
		b.pending += messageOverhead + len(m.Content) + len(m.Reasoning) + len(m.Name)
		for _, c := range m.ToolCalls {
			b.pending += messageOverhead + len(c.Name) + len(c.Arguments)
		}
	}
}

// addTools counts what the server adds to the prompt for the tools.
func (b *budget) addTools(specs []tools.Spec) {
	for _, s := range specs {
		b.pending += messageOverhead + len(s.Name) + len(s.Description) + len(s.Parameters)
	}
}

// replied counts a reply. The server's count replaces all estimates. A smaller count than before is ignored,
// because a prompt never shrinks: some servers leave out cached tokens.
func (b *budget) replied(r Reply) {
	if r.Usage.Prompt > 0 {
		b.prompted = max(b.prompted, r.Usage.Prompt)
		b.counted, b.pending = b.prompted+r.Usage.Completion, 0
		return
	}
	b.add(r.Message)
}

// prompt returns the estimated number of tokens in the next request.
func (b *budget) prompt() int { return b.counted + (b.pending+bytesPerToken-1)/bytesPerToken }

// reserve returns how many tokens must remain for a reply, so that the model can still submit.
func (b *budget) reserve() int { return min(4096, b.context/8) }

// usable returns how many tokens of the context a prompt may take.
func (b *budget) usable() int { return b.context - b.reserve() }

// full reports whether the context has no room for another reply.
func (b *budget) full() bool { return b.context > 0 && b.prompt() > b.usable() }

// nearlyFull reports whether the model should be asked to finish.
func (b *budget) nearlyFull() bool { return b.context > 0 && b.prompt()*100 >= b.usable()*warnAt }

// above reports whether the prompt takes more than the given percentage of the usable context.
func (b *budget) above(percent int) bool {
	return b.context > 0 && b.prompt()*100 > b.usable()*percent
}

// shrink adjusts the count after messages became shorter, in bytes. The server has not counted their new form yet,
// but it has counted the old one.
func (b *budget) shrink(before, after int) {
	b.counted = b.prompt() * after / max(before, 1)
	b.prompted, b.pending = 0, 0
}

// room returns how many bytes of observations still fit; bounded is false if the context is unknown.
func (b *budget) room() (bytes int, bounded bool) {
	if b.context <= 0 {
		return 0, false
	}
	return max(0, b.usable()-b.prompt()) * bytesPerToken, true
}

// left returns how many tokens the next reply may take; 0 means unknown.
func (b *budget) left() int {
	if b.context <= 0 {
		return 0
	}
	return max(b.context-b.prompt()-slack, 1)
}
