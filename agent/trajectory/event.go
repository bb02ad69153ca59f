package trajectory

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// LogVersion is the version of the event log that this package writes. Logs of newer versions are rejected.
const LogVersion = 1

// Kind is the kind of an event.
type Kind string

// The kinds of events, in the order of their first occurrence in a rollout.
const (
	KindHeader      Kind = "header"      // describes the rollout; always the first event
	KindMessage     Kind = "message"     // a system or user message added to the conversation
	KindReply       Kind = "reply"       // the model's reply, before its calls are run
	KindObservation Kind = "observation" // a message that answers the reply
	KindCompaction  Kind = "compaction"  // what is left out of the conversation from here on
	KindStop        Kind = "stop"        // how the rollout ended
)

// Event is one line of the log. Exactly one field is set: the one that Kind names.
type Event struct {
	// Seq counts from 1, and Time is when the event was logged. The Writer sets both (Time only if it is zero).
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	// Chain numbers the conversation that the event belongs to, where a rollout has several; see [Stop].
	Chain int `json:"chain,omitempty"`
	// Tools are the definitions of the conversation that begins with this message, if they differ from the header's.
	Tools []json.RawMessage `json:"tools,omitzero"`

	Header      *Header      `json:"header,omitempty"`
	Message     *Message     `json:"message,omitempty"`
	Reply       *Reply       `json:"reply,omitempty"`
	Observation *Observation `json:"observation,omitempty"`
	Compaction  *Compaction  `json:"compaction,omitempty"`
	Stop        *Stop        `json:"stop,omitempty"`
}

// Header describes the rollout. Only Agent is required.
type Header struct {
	// Version is LogVersion; the Writer sets it.
	Version int `json:"version"`
	// Session names the run and may be shared by many rollouts; Trajectory names this rollout only.
	Session    string `json:"session,omitempty"`
	Trajectory string `json:"trajectory,omitempty"`
	// Agent and AgentVersion name the program that runs the rollout.
	Agent        string `json:"agent"`
	AgentVersion string `json:"agent_version,omitempty"`
	// Model is the model's name in requests.
	Model string `json:"model,omitempty"`
	// Format is the action format: "xml" if calls are in the text, "tools" if they are native.
	Format string `json:"format,omitempty"`
	// Tools are the definitions that were offered to the model, in the form of OpenAI's function tools.
	Tools []json.RawMessage `json:"tools,omitempty"`
	Task  string            `json:"task,omitempty"`
	// Prefix is how many replies at the beginning are those of another rollout, from which this one goes on.
	Prefix int `json:"prefix,omitempty"`
	// Extra contains whatever else the agent wants to store: sampling, limits, the prompt pack, the image.
	Extra map[string]any `json:"extra,omitempty"`
}

// FormatXML and FormatTools are the action formats of a [Header].
const (
	FormatXML   = "xml"
	FormatTools = "tools"
)

// Compaction says how the conversation was shortened for sending, by the indexes of its messages at that time. The
// log keeps the messages themselves.
type Compaction struct {
	// Strategy is the name of the agent's strategy.
	Strategy string `json:"strategy"`
	// Elided are messages whose text was replaced by a short note.
	Elided []int `json:"elided,omitempty"`
	// Summary, if not empty, replaced the messages from From up to, but not including, To.
	Summary string `json:"summary,omitempty"`
	From    int    `json:"from,omitempty"`
	To      int    `json:"to,omitempty"`
	// Usage is the token usage of writing the summary.
	Usage Usage `json:"usage,omitzero"`
}

// Stop says how a rollout ended.
type Stop struct {
	Reason StopReason `json:"reason"`
	// Answer is the model's summary of its work when it submitted.
	Answer string `json:"answer,omitempty"`
	// Error is the failure behind the reason, if any.
	Error   string        `json:"error,omitempty"`
	Elapsed time.Duration `json:"elapsed_ns,omitempty"`
	// Chains describe the conversations of the rollout in the order in which they are read, the main one first. There
	// are none where a rollout is one conversation.
	Chains []Chain `json:"chains,omitempty"`
	// Counts holds further counts, by names that whoever played the rollout has chosen.
	Counts map[string]int `json:"counts,omitempty"`
}

// HeaderEvent returns an event that contains a header.
func HeaderEvent(h Header) Event { return Event{Kind: KindHeader, Header: &h} }

// MessageEvent returns an event that contains a system or user message.
func MessageEvent(m Message) Event { return Event{Kind: KindMessage, Message: &m} }

// ReplyEvent returns an event that contains the model's reply.
func ReplyEvent(r Reply) Event { return Event{Kind: KindReply, Reply: &r} }

// ObservationEvent returns an event that contains the message that answers a reply.
func ObservationEvent(o Observation) Event { return Event{Kind: KindObservation, Observation: &o} }

// CompactionEvent returns an event that says how the conversation was shortened.
func CompactionEvent(c Compaction) Event { return Event{Kind: KindCompaction, Compaction: &c} }

// StopEvent returns an event that says how the rollout ended.
func StopEvent(s Stop) Event { return Event{Kind: KindStop, Stop: &s} }

// check returns an error if the event's fields do not match its kind.
func (e Event) check() error {
	set := map[Kind]bool{
		KindHeader:      e.Header != nil,
		KindMessage:     e.Message != nil,
		KindReply:       e.Reply != nil,
		KindObservation: e.Observation != nil,
		KindCompaction:  e.Compaction != nil,
		KindStop:        e.Stop != nil,
	}
	if _, known := set[e.Kind]; !known {
		return fmt.Errorf("unknown kind of event %q", e.Kind)
	}
	for kind, present := range set {
		if present != (kind == e.Kind) {
			return fmt.Errorf("event of kind %q must contain a %s and nothing else", e.Kind, e.Kind)
		}
	}
	if (e.Kind == KindHeader) != (e.Seq == 1) {
		return errors.New("a log must have one header, as its first event")
	}
	if t := e.tokens(); t != nil && len(t.Logprobs) != 0 && len(t.Logprobs) != len(t.CompletionIDs) {
		return fmt.Errorf("%d logprobs for %d completion tokens", len(t.Logprobs), len(t.CompletionIDs))
	}
	if e.Kind == KindReply {
		return checkCalls(e.Reply.Calls)
	}
	return nil
}

func checkCalls(calls []Call) error {
	seen := make(map[string]bool, len(calls))
	for _, c := range calls {
		if c.ID == "" || seen[c.ID] {
			return fmt.Errorf("call id %q is empty or used twice in one reply", c.ID)
		}
		seen[c.ID] = true
	}
	return nil
}

func (e Event) tokens() *Sample {
	if e.Reply == nil {
		return nil
	}
	return e.Reply.Tokens
}

// ErrLog marks a log that cannot be trusted, because an event is invalid, out of order or of a newer version. A
// torn last line is not an error: a killed writer leaves it, and it is dropped.
var ErrLog = errors.New("broken event log")
