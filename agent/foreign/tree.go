package foreign

import (
	"encoding/hex"
	"slices"
	"strconv"

	"deepswe/agent"
)

// tree holds the conversations of a rollout. It is not safe for concurrent use.
type tree struct {
	// replies holds what the model has said, by the keys of the conversations that end with it: with its thoughts, and
	// without, as some agents send it.
	replies map[key]*reply
	// asked holds the last call with each prompt.
	asked  map[key]*call
	chains []*chain
}

// reply is something that the model said.
type reply struct {
	key    key
	chain  *chain
	path   []agent.Message // the conversation up to it
	sample *agent.Sample
	tokens int // of prompt and reply
	// continued is set once another call goes on from here in the same chain.
	continued bool
	// used is set once the agent has it: it was delivered, or another call goes on from it.
	used bool
	seq  int64 // of its event
}

// chain is a line of calls, each of which continues the one before.
type chain struct {
	id int
	// from is the reply that it branches off; nil for a conversation of its own.
	from *reply
	// opening are the messages that its first call has beyond those of from.
	opening []agent.Message
	tools   bool
	offered key // of the tools
	replies []*reply
}

// call is a request to the model.
type call struct {
	request
	key   key
	after *reply // the reply that it continues; nil if there is none
	fresh []agent.Message
	path  []agent.Message // the whole conversation, in which recorded replies are as the model wrote them
	chain *chain

	done   chan struct{}
	answer agent.Reply
	err    error
	reply  *reply // nil until it is answered
}

func newTree() *tree { return &tree{replies: map[key]*reply{}, asked: map[key]*call{}} }

// place finds the last recorded reply in a request's conversation, and the messages that follow it.
func (t *tree) place(r request) *call {
	c := &call{request: r, key: opening(r.tools), fresh: r.messages, done: make(chan struct{})}
	for i, m := range r.messages {
		if m.Role == agent.RoleAssistant {
			known := t.replies[c.key.then(m, true)]
			if known == nil && m.Reasoning == "" {
				known = t.replies[c.key.then(m, false)]
			}
			if known != nil {
				c.key, c.after, c.fresh = known.key, known, r.messages[i+1:]
				continue
			}
		}
		c.key = c.key.then(m, false) // agents leave thoughts out at will
	}
	return c
}

// again returns the earlier call that a request repeats; nil if there is none, or if another call continues its
// answer.
func (t *tree) again(c *call) *call {
	before := t.asked[c.key]
	if before == nil || before.reply != nil && before.reply.continued {
		return nil
	}
	return before
}

// beginCall gives the call a chain: that of the reply that it continues or, if another call continues that, a new
// one.
func (t *tree) beginCall(c *call) {
	t.asked[c.key] = c
	if c.after != nil && !c.after.continued {
		c.after.continued, c.after.used = true, true
		c.chain, c.path = c.after.chain, append(c.after.path, c.fresh...) // shares memory with the chain's earlier paths
		return
	}
	c.path = c.fresh
	if c.after != nil {
		c.after.used = true
		c.path = slices.Concat(c.after.path, c.fresh)
	}
	c.chain = &chain{
		id: len(t.chains), from: c.after, opening: c.fresh, tools: len(c.tools) > 0, offered: opening(c.tools),
	}
	t.chains = append(t.chains, c.chain)
}

// fail takes back a call that got no reply, so that another can take its place.
func (t *tree) fail(c *call) {
	if t.asked[c.key] == c {
		delete(t.asked, c.key)
	}
	if c.after != nil && c.after.chain == c.chain {
		c.after.continued = false
	}
}

func (t *tree) end(c *call, answer agent.Reply) *reply {
	m := answer.Message
	r := &reply{
		key: c.key.then(m, true), chain: c.chain, path: append(c.path, m), sample: answer.Tokens,
		tokens: answer.Usage.Prompt + answer.Usage.Completion,
	}
	t.replies[r.key] = r
	if short := c.key.then(m, false); t.replies[short] == nil {
		t.replies[short] = r
	}
	var past []*agent.Sample
	for _, earlier := range c.chain.replies {
		past = append(past, earlier.sample)
	}
	agent.SharePrompts(past, r.sample)
	c.reply = r
	c.chain.replies = append(c.chain.replies, r)
	return r
}

// name gives the calls of a reply IDs that depend only on the conversation, so that a replay has the same ones.
func (c *call) name(m *agent.Message) {
	for i := range m.ToolCalls {
		m.ToolCalls[i].ID = "call_" + hex.EncodeToString(c.key[:8]) + "_" + strconv.Itoa(i)
	}
}
