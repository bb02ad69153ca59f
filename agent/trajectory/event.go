package trajectory

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// LogVersion is the version of the event log that this package writes. A newer log is refused.
const LogVersion = 1

// Kind says what an event is.
type Kind string

// The kinds of events, in the order in which a rollout sees them first.
const (
	KindHeader      Kind = "header"      // what is being done, by whom; always the first event
	KindMessage     Kind = "message"     // a system or user message that was added to the conversation
	KindReply       Kind = "reply"       // the model's answer, before anything in it was run
	KindObservation Kind = "observation" // the message that answers it
	KindCompaction  Kind = "compaction"  // what was left out of the conversation from here on
	KindStop        Kind = "stop"        // how the rollout ended
)

// Event is one line of the log. Exactly the field that Kind names is set.
type Event struct {
	// Seq counts from 1 and Time is when the event was logged; the Writer sets both (Time only where it is zero).
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`

	Header      *Header      `json:"header,omitempty"`
	Message     *Message     `json:"message,omitempty"`
	Reply       *Reply       `json:"reply,omitempty"`
	Observation *Observation `json:"observation,omitempty"`
	Compaction  *Compaction  `json:"compaction,omitempty"`
	Stop        *Stop        `json:"stop,omitempty"`
}

// Header says what the rollout is. The zero value of every field but Agent is allowed.
type Header struct {
	// Version is LogVersion; the Writer sets it.
	Version int `json:"version"`
	// Session names the run, and may be shared by many rollouts. Trajectory names this rollout alone.
	Session    string `json:"session,omitempty"`
	Trajectory string `json:"trajectory,omitempty"`
	// Agent and AgentVersion name the program that runs the rollout.
	Agent        string `json:"agent"`
	AgentVersion string `json:"agent_version,omitempty"`
	// Model is the name that requests ask for.
	Model string `json:"model,omitempty"`
	// Format is the action format: "xml" where calls are in the text, "tools" where they are native.
	Format string `json:"format,omitempty"`
	// Tools are the definitions that the model was offered, in the shape of OpenAI's function tools.
	Tools []json.RawMessage `json:"tools,omitempty"`
	Task  string            `json:"task,omitempty"`
	// Extra is for whatever else the agent wants to find again: sampling, limits, the prompt pack, the image.
	Extra map[string]any `json:"extra,omitempty"`
}

// FormatXML and FormatTools are the action formats of a [Header].
const (
	FormatXML   = "xml"
	FormatTools = "tools"
)

// Compaction says how the conversation that is sent was made shorter, by the indexes of its messages at that time. The
// messages themselves stay in the log.
type Compaction struct {
	// Strategy is the agent's word.
	Strategy string `json:"strategy"`
	// Elided are messages whose text was replaced by a line that says so.
	Elided []int `json:"elided,omitempty"`
	// Summary, when not empty, took the place of the messages from From up to To, which is not one of them.
	Summary string `json:"summary,omitempty"`
	From    int    `json:"from,omitempty"`
	To      int    `json:"to,omitempty"`
	// Usage is what the summary took.
	Usage Usage `json:"usage,omitzero"`
}

// Stop says how a rollout ended.
type Stop struct {
	Reason StopReason `json:"reason"`
	// Answer is what the model said about its work when it submitted.
	Answer string `json:"answer,omitempty"`
	// Error is the failure behind the reason, where there is one.
	Error   string        `json:"error,omitempty"`
	Elapsed time.Duration `json:"elapsed_ns,omitempty"`
}

// HeaderEvent wraps a header for the log, as MessageEvent, ReplyEvent, ObservationEvent and StopEvent do theirs.
func HeaderEvent(h Header) Event { return Event{Kind: KindHeader, Header: &h} }

// MessageEvent logs a system or user message. See [HeaderEvent].
func MessageEvent(m Message) Event { return Event{Kind: KindMessage, Message: &m} }

// ReplyEvent logs the model's answer. See [HeaderEvent].
func ReplyEvent(r Reply) Event { return Event{Kind: KindReply, Reply: &r} }

// ObservationEvent logs the message that answers a reply. See [HeaderEvent].
func ObservationEvent(o Observation) Event { return Event{Kind: KindObservation, Observation: &o} }

// CompactionEvent logs that the conversation was made shorter. See [HeaderEvent].
func CompactionEvent(c Compaction) Event { return Event{Kind: KindCompaction, Compaction: &c} }

// StopEvent logs the end. See [HeaderEvent].
func StopEvent(s Stop) Event { return Event{Kind: KindStop, Stop: &s} }

// check reports an event that is not what its kind says.
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
			return fmt.Errorf("event of kind %q must hold a %s and nothing else", e.Kind, e.Kind)
		}
	}
	if (e.Kind == KindHeader) != (e.Seq == 1) {
		return errors.New("a log has one header, and begins with it")
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

// ErrLog marks a log that cannot be trusted: an event that is broken, out of order or of a newer version. A torn last
// line is not an error: it is what a killed writer leaves, and is dropped.
var ErrLog = errors.New("broken event log")
