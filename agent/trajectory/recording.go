package trajectory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Recording is a recorded rollout, read from an event log or a document.
type Recording struct {
	Header Header
	// Messages is the whole conversation in order, each message as it was when it was new. The next prompt of a
	// resumed rollout starts with it, except for what Compactions leave out. Several conversations follow each other.
	Messages []Message
	// Turns are the model's replies, each with what followed it.
	Turns []Turn
	// Compactions say where the conversation was shortened for sending. Token IDs are those of what was sent.
	Compactions []Compaction
	// Stop is nil if the rollout has not ended.
	Stop *Stop
	// Started is the time of the first event; zero if unknown.
	Started time.Time
}

// Samples returns every reply that can be learned from as it was sampled, those of a conversation together and in
// order. ok is false if the token IDs or log-probabilities of any of them are unknown.
func (r *Recording) Samples() ([]Sample, bool) {
	var all []Sample
	for _, t := range r.Turns {
		if t.Untrained {
			continue
		}
		tokens := t.Reply.Tokens
		if tokens == nil || len(tokens.CompletionIDs) == 0 || len(tokens.Logprobs) != len(tokens.CompletionIDs) {
			return nil, false
		}
		s := *tokens
		s.FormatError = len(t.Reply.Calls) == 0 && t.Reply.Problem != ""
		all = append(all, s)
	}
	return all, len(all) > 0
}

// Record collects the events of a log into a Recording.
func Record(events []Event) (*Recording, error) {
	if len(events) == 0 || events[0].Header == nil {
		return nil, fmt.Errorf("%w: it has no header", ErrLog)
	}
	untrained := untrainedOf(events[len(events)-1])
	events = inOrder(events)
	r := &Recording{Header: *events[0].Header, Started: events[0].Time}
	for _, e := range events[1:] {
		r.Stop = nil // the rollout was continued after its end
		switch e.Kind {
		case KindMessage:
			r.Messages = append(r.Messages, *e.Message)
		case KindReply:
			r.Messages = append(r.Messages, e.Reply.Message)
			copied := len(r.Turns) < r.Header.Prefix
			r.Turns = append(r.Turns, Turn{Reply: *e.Reply, Untrained: copied || untrained[e.Seq]})
		case KindObservation:
			if len(r.Turns) == 0 {
				return nil, fmt.Errorf("%w: event %d is an observation, but no reply precedes it", ErrLog, e.Seq)
			}
			r.Messages = append(r.Messages, e.Observation.Message)
			last := &r.Turns[len(r.Turns)-1]
			last.Observations = append(last.Observations, *e.Observation)
		case KindCompaction:
			r.Compactions = append(r.Compactions, *e.Compaction)
		case KindStop:
			r.Stop = new(*e.Stop)
		}
	}
	return r, nil
}

// Beginning returns the events of a rollout up to the results of its first replies, as the past of another rollout,
// which goes on from there.
func Beginning(events []Event, replies int) []Event {
	var begun []Event
	copied := 0
	for _, e := range events {
		if e.Kind == KindReply {
			if copied == replies {
				break
			}
			copied++
		}
		if e.Kind != KindStop {
			if e.Reply != nil {
				own := *e.Reply
				own.Elapsed, e.Reply = 0, &own // it is replayed, which takes no time
			}
			e.Time = time.Time{}
			begun = append(begun, e)
		}
	}
	if len(begun) > 0 && begun[0].Header != nil {
		own := *begun[0].Header
		own.Prefix = copied
		begun[0].Header = &own
	}
	return begun
}

// Open reads a recording from a file, which may be an event log or an ATIF document.
func Open(path string) (*Recording, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("open trajectory: %w", err)
	}
	r, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("open trajectory %s: %w", path, err)
	}
	return r, nil
}

// Parse reads a recording from the content of such a file.
func Parse(data []byte) (*Recording, error) {
	var probe struct {
		Kind          Kind   `json:"kind"`
		SchemaVersion string `json:"schema_version"`
	}
	err := json.NewDecoder(bytes.NewReader(data)).Decode(&probe)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("neither an event log nor an ATIF document: %w", err)
	case probe.SchemaVersion != "":
		d, err := Decode(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		return d.Recording()
	case probe.Kind == KindHeader:
		events, err := ReadEvents(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		return Record(events)
	default:
		return nil, errors.New("neither an event log (its first line is a header) nor an ATIF document (it has a " +
			"schema_version)")
	}
}
