package foreign

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"deepswe/agent"
	"deepswe/agent/trajectory"
)

// telling is the minimum length of a text, in bytes, that does not occur in another conversation by chance.
const telling = 40

// describe says what each chain is for, in the order in which they are read: main chains first, the longest of them at
// the beginning.
func (t *tree) describe(statement string, subAgents []string) []trajectory.Chain {
	used := slices.DeleteFunc(slices.Clone(t.chains), func(c *chain) bool { return len(c.replies) == 0 })
	kinds, summaries := kindsOf(used, strings.TrimSpace(statement), subAgents)
	order := trajectory.ChainKinds()
	slices.SortStableFunc(used, func(a, b *chain) int {
		if kinds[a] == trajectory.Main && kinds[b] == trajectory.Main {
			return cmp.Compare(b.length(), a.length())
		}
		return cmp.Compare(slices.Index(order, kinds[a]), slices.Index(order, kinds[b]))
	})
	all := make([]trajectory.Chain, 0, len(used))
	for _, c := range used {
		d := trajectory.Chain{ID: c.id, Kind: kinds[c], Replies: len(c.replies)}
		for _, r := range c.replies {
			if r.sample != nil {
				d.Sampled += len(r.sample.CompletionIDs)
			}
			if !r.used || d.Kind == trajectory.Auxiliary && !summaries[r] {
				d.Untrained = append(d.Untrained, r.seq)
			}
		}
		all = append(all, d)
	}
	return all
}

// kindsOf says what chains are for, and which replies another conversation begins with. A conversation about the
// task, or the longest if none is, is a main one. Of the others with tools, one that begins with a reply of another
// is a continuation, and one that begins with the arguments of a call that starts an agent is a sub-agent. One with
// the tools of a main one is a continuation, too, because its summary may be too short to recognise, unless another
// waited for it: a command started it then. If some have tools, those without are auxiliary.
func kindsOf(
	used []*chain, statement string, subAgents []string,
) (kinds map[*chain]trajectory.ChainKind, summaries map[*reply]bool) {
	kinds, summaries = map[*chain]trajectory.ChainKind{}, map[*reply]bool{}
	withTools := slices.ContainsFunc(used, func(c *chain) bool { return c.tools })
	var open []*chain // roots whose kind is to be found
	for _, c := range used {
		kinds[c] = trajectory.Auxiliary
		if c.from == nil && c.tools == withTools {
			open = append(open, c)
		}
	}
	about := slices.DeleteFunc(slices.Clone(open), func(c *chain) bool { return !c.says(statement) })
	if len(about) == 0 && len(open) > 0 {
		about = []*chain{slices.MaxFunc(open, func(a, b *chain) int { return cmp.Compare(a.length(), b.length()) })}
	}
	for _, c := range about {
		kinds[c] = trajectory.Main
	}
	for range used { // a kind that was found may determine others
		for _, c := range open {
			for _, other := range used {
				if c == other {
					continue
				}
				summary := other.summary(c)
				if summary != nil {
					summaries[summary] = true
				}
				switch {
				case kinds[c] != trajectory.Auxiliary:
				case summary != nil:
					kinds[c] = trajectory.Continuation
				case kinds[other] != trajectory.Auxiliary && other.starts(c, subAgents):
					kinds[c] = trajectory.SubAgent
				case kinds[other] == trajectory.Main && other.offered == c.offered && !c.awaited(used):
					kinds[c] = trajectory.Continuation
				}
			}
		}
		for _, c := range used {
			if c.from != nil {
				kinds[c] = kinds[c.from.chain]
			}
		}
	}
	return kinds, summaries
}

// awaited reports whether another chain has replies before and after this one, but none while it lasted.
func (c *chain) awaited(by []*chain) bool {
	first, last := c.replies[0].seq, c.replies[len(c.replies)-1].seq
	return slices.ContainsFunc(by, func(o *chain) bool {
		next, _ := slices.BinarySearchFunc(o.replies, first, func(r *reply, seq int64) int { return cmp.Compare(r.seq, seq) })
		return o != c && next > 0 && next < len(o.replies) && o.replies[next].seq > last
	})
}

// length counts what the model has written in a chain: tokens, or bytes where tokens are not known.
func (c *chain) length() int {
	n := 0
	for _, r := range c.replies {
		if r.sample != nil {
			n += len(r.sample.CompletionIDs)
		} else {
			n += size(r.path[len(r.path)-1])
		}
	}
	return n
}

// says reports whether the text occurs in the chain's opening, outside system messages.
func (c *chain) says(text string) bool {
	return text != "" && slices.ContainsFunc(c.opening, func(m agent.Message) bool {
		return m.Role != agent.RoleSystem && strings.Contains(m.Content, text)
	})
}

// summary returns the reply whose text occurs in the opening of another chain; nil if there is none.
func (c *chain) summary(next *chain) *reply {
	for _, r := range c.replies {
		if text := strings.TrimSpace(r.path[len(r.path)-1].Content); len(text) >= telling && next.says(text) {
			return r
		}
	}
	return nil
}

// starts reports whether a call in the chain starts the agent of another chain.
func (c *chain) starts(next *chain, subAgents []string) bool {
	for _, r := range c.replies {
		for _, call := range r.path[len(r.path)-1].ToolCalls {
			var args map[string]json.RawMessage
			if !slices.Contains(subAgents, call.Name) || json.Unmarshal([]byte(call.Arguments), &args) != nil {
				continue
			}
			for _, value := range args {
				var text string
				if json.Unmarshal(value, &text) == nil && len(text) >= telling/2 && next.says(strings.TrimSpace(text)) {
					return true
				}
			}
		}
	}
	return false
}
