package trajectory

import (
	"cmp"
	"slices"
)

// Chain is one conversation of a rollout: calls of the model, each of which continues the one before.
type Chain struct {
	// ID is the number in the events.
	ID   int       `json:"id"`
	Kind ChainKind `json:"kind"`
	// Replies counts the model's replies, and Sampled their tokens.
	Replies int `json:"replies"`
	Sampled int `json:"sampled,omitempty"`
	// Untrained are the numbers of the events with replies that nothing is learned from: those of an auxiliary
	// conversation, and those that never reached the agent.
	Untrained []int64 `json:"untrained,omitempty"`
}

// ChainKind says what a conversation is for.
type ChainKind string

// The kinds of conversations.
const (
	// Main is the work on the task. An agent that changes its history has several of these.
	Main ChainKind = "main"
	// Continuation goes on after a compaction: it begins with a summary that the model wrote.
	Continuation ChainKind = "continuation"
	// SubAgent is the work on a part that another conversation has asked for.
	SubAgent ChainKind = "sub_agent"
	// Auxiliary is whatever else an agent asks: a title, a summary for people.
	Auxiliary ChainKind = "auxiliary"
)

// ChainKinds returns the kinds in the order in which conversations are read.
func ChainKinds() []ChainKind { return []ChainKind{Main, Continuation, SubAgent, Auxiliary} }

// split returns the events of each conversation, in the order of the last Stop, each with the header and the end.
func split(events []Event) [][]Event {
	var ids []int
	at := map[int][]Event{}
	var stop *Event
	for i, e := range events[1:] {
		if e.Kind == KindStop {
			stop = &events[i+1]
			continue
		}
		stop = nil // the rollout was continued after its end
		if _, known := at[e.Chain]; !known {
			begin := events[0]
			if e.Tools != nil {
				own := *begin.Header
				begin.Header, own.Tools = &own, e.Tools
			}
			ids, at[e.Chain] = append(ids, e.Chain), []Event{begin}
		}
		at[e.Chain] = append(at[e.Chain], e)
	}
	if len(ids) == 0 {
		ids, at[0] = []int{0}, []Event{events[0]}
	}
	if stop != nil {
		place := func(id int) int {
			return slices.IndexFunc(stop.Stop.Chains, func(c Chain) bool { return c.ID == id })
		}
		slices.SortStableFunc(ids, func(a, b int) int { return cmp.Compare(place(a), place(b)) })
	}
	all := make([][]Event, 0, len(ids))
	for _, id := range ids {
		one := at[id]
		if stop != nil {
			one = append(one, *stop)
		}
		all = append(all, one)
	}
	return all
}

// Conversations returns the events of each conversation of a rollout as a log of its own, the main one first.
func Conversations(events []Event) [][]Event {
	if len(events) == 0 || !slices.ContainsFunc(events, func(e Event) bool { return e.Chain != 0 }) {
		return [][]Event{events}
	}
	return split(events)
}

// inOrder returns the events with those of each conversation together, after the header of the main one.
func inOrder(events []Event) []Event {
	all := Conversations(events)
	if len(all) == 1 {
		return all[0]
	}
	ordered := []Event{all[0][0]}
	for i, one := range all {
		if last := len(one) - 1; i < len(all)-1 && one[last].Kind == KindStop {
			one = one[:last]
		}
		ordered = append(ordered, one[1:]...)
	}
	return ordered
}

// untrainedOf returns the numbers of the events with replies that nothing is learned from, as the last event says.
func untrainedOf(last Event) map[int64]bool {
	out := map[int64]bool{}
	if last.Stop != nil {
		for _, c := range last.Stop.Chains {
			for _, seq := range c.Untrained {
				out[seq] = true
			}
		}
	}
	return out
}
