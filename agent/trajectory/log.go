package trajectory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"deepswe/env/disk"
)

// Writer appends events to a log. It syncs the log after every reply, which was expensive to get, and at the end.
// After a failed write, every further Append returns the same error, so that a log never has gaps.
type Writer struct {
	mu     sync.Mutex
	log    *disk.Log
	seq    int64
	last   Sequence
	closed bool
}

type storedEvent struct {
	Event
	Tokens *wireTokens `json:"tokens,omitempty"`
}

// Create creates a new log. It returns fs.ErrExist if the file exists.
func Create(path string) (*Writer, error) {
	log, err := disk.CreateLog(path)
	if err != nil {
		return nil, fmt.Errorf("event log: %w", err)
	}
	return &Writer{log: log}, nil
}

// Resume opens the log of a killed rollout, cuts off a torn last line, and returns its events. The Writer appends
// after them.
func Resume(path string) (*Writer, []Event, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, nil, fmt.Errorf("resume event log: %w", err)
	}
	var r reader
	log, err := disk.OpenLog(path, r.read)
	if err != nil {
		return nil, nil, fmt.Errorf("resume event log: %w", asLogError(err))
	}
	// A copy, because the writer will overwrite r.last, and the events refer to its memory.
	return &Writer{log: log, seq: r.seq, last: append(Sequence(nil), r.last...)}, r.events, nil
}

// Append logs an event. The first event, and only the first, must be a header. Text that is not valid UTF-8 is
// stored with U+FFFD in place of each invalid byte, as JSON requires.
func (w *Writer) Append(e Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	line, err := w.encode(&e)
	if err == nil {
		err = w.log.AppendLine(line)
	}
	if err == nil && (e.Kind == KindReply || e.Kind == KindStop) {
		err = w.log.Sync()
	}
	if err != nil {
		return fmt.Errorf("append to event log: %w", err)
	}
	w.seq = e.Seq
	if t := e.tokens(); t != nil {
		w.last = w.last.Follow(t)
	}
	return nil
}

// encode completes the event and returns its line.
func (w *Writer) encode(e *Event) ([]byte, error) {
	e.Seq = w.seq + 1
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC()
	if e.Header != nil {
		h := *e.Header
		h.Version = LogVersion
		e.Header = &h
	}
	if err := e.check(); err != nil {
		return nil, err
	}
	stored := storedEvent{Event: *e}
	if t := e.tokens(); t != nil {
		stored.Tokens = w.last.pack(t)
	}
	return disk.MarshalJSON(stored)
}

// Close syncs and closes the log. Further calls do nothing.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	if err := w.log.Close(); err != nil {
		return fmt.Errorf("close event log: %w", err)
	}
	return nil
}

// ReadEvents returns the events of a log, without a torn last line.
func ReadEvents(log io.Reader) ([]Event, error) {
	var r reader
	if err := disk.ReadLines(log, r.read); err != nil {
		return nil, fmt.Errorf("read event log: %w", asLogError(err))
	}
	return r.events, nil
}

// asLogError makes the error for a damaged file wrap ErrLog as well.
func asLogError(err error) error {
	if errors.Is(err, disk.ErrDamaged) {
		return fmt.Errorf("%w: %w", ErrLog, err)
	}
	return err
}

// reader collects a log's events, and what a Writer needs in order to continue the log.
type reader struct {
	events []Event
	seq    int64
	last   Sequence
}

func (r *reader) read(line []byte) error {
	e, last, err := r.decode(line)
	if err != nil {
		return fmt.Errorf("%w: event %d: %w", ErrLog, r.seq+1, err)
	}
	r.events = append(r.events, e)
	r.seq, r.last = e.Seq, last
	return nil
}

func (r *reader) decode(line []byte) (Event, Sequence, error) {
	var stored storedEvent
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&stored); err != nil {
		return Event{}, nil, err
	}
	e, last := stored.Event, r.last
	if e.Seq != r.seq+1 {
		return Event{}, nil, fmt.Errorf("its number is %d: another writer was at work", e.Seq)
	}
	if err := e.check(); err != nil {
		return Event{}, nil, err
	}
	if e.Header != nil && e.Header.Version > LogVersion {
		return Event{}, nil, fmt.Errorf("the log has version %d, this program reads %d: use a newer "+
			"deepswe", e.Header.Version, LogVersion)
	}
	if stored.Tokens != nil {
		if e.Reply == nil {
			return Event{}, nil, errors.New("tokens without a reply")
		}
		var err error
		if e.Reply.Tokens, last, err = r.last.unpack(*stored.Tokens); err != nil {
			return Event{}, nil, err
		}
	}
	return e, last, nil
}

// wireTokens is how a log stores a Sample. Because a prompt nearly always starts with the previous prompt and
// completion, only the difference is stored; otherwise the size of a log would be quadratic in the rollout's
// length.
type wireTokens struct {
	// Shared is how many token IDs the prompt has in common with the start of the previous prompt plus completion.
	Shared        int       `json:"shared,omitempty"`
	Prompt        []int32   `json:"prompt"`
	Completion    []int32   `json:"completion"`
	Logprobs      []float64 `json:"logprobs,omitempty"`
	PolicyVersion *int64    `json:"policy_version,omitempty"`
}

// Sequence is the previous prompt plus completion of a rollout, for reading or writing its next turn.
type Sequence []int32

// pack returns the stored form of the next reply's tokens.
func (s Sequence) pack(t *Sample) *wireTokens {
	shared := s.Shared(t.PromptIDs)
	return &wireTokens{
		Shared: shared, Prompt: t.PromptIDs[shared:], Completion: t.CompletionIDs, Logprobs: t.Logprobs,
		PolicyVersion: t.PolicyVersion,
	}
}

// Follow returns the sequence after a reply. It overwrites s.
func (s Sequence) Follow(t *Sample) Sequence {
	shared := s.Shared(t.PromptIDs)
	return append(append(s[:shared], t.PromptIDs[shared:]...), t.CompletionIDs...)
}

// Shared returns how many token IDs the prompt has in common with the start of the sequence.
func (s Sequence) Shared(prompt []int32) int {
	const block = 256 // whole blocks are compared first
	n, i := min(len(s), len(prompt)), 0
	for ; i+block <= n && [block]int32(s[i:]) == [block]int32(prompt[i:]); i += block {
	}
	for i < n && s[i] == prompt[i] {
		i++
	}
	return i
}

// Extend returns the prompt that consists of the first shared token IDs of the sequence followed by rest, the
// completion, and the sequence after both. Prompts that extend one another share memory.
func (s Sequence) Extend(shared int, rest, completion []int32) (prompt, sampled []int32, next Sequence, err error) {
	if shared < 0 || shared > len(s) {
		return nil, nil, nil, fmt.Errorf("prompt shares %d tokens with a sequence of %d", shared, len(s))
	}
	base := s
	if shared < len(s) {
		base = append(make(Sequence, 0, len(s)), s[:shared]...)
	}
	whole := append(base, rest...)
	next = append(whole, completion...)
	return next[:len(whole):len(whole)], next[len(whole):len(next):len(next)], next, nil
}

// unpack is the inverse of pack.
func (s Sequence) unpack(w wireTokens) (*Sample, Sequence, error) {
	t := &Sample{Logprobs: w.Logprobs, PolicyVersion: w.PolicyVersion}
	var next Sequence
	var err error
	t.PromptIDs, t.CompletionIDs, next, err = s.Extend(w.Shared, w.Prompt, w.Completion)
	return t, next, err
}
