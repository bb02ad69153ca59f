package trajectory

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Sync says when a log is forced to the disk. Every event is handed to the operating system before Append returns, so
// whatever the policy, a killed process loses nothing; the policy is about a machine that goes down.
type Sync int

// The sync policies. SyncReplies waits for the disk where work was expensive: after replies and at the end.
const (
	SyncReplies Sync = iota
	SyncAlways
	SyncNever
)

// LogOptions sets up a Writer. The zero value is useful.
type LogOptions struct {
	Sync Sync
	// Now is the clock: time.Now when nil.
	Now func() time.Time
}

// Writer appends events to a log. After a failed write every further Append fails with the same error: a log has no
// holes.
type Writer struct {
	mu   sync.Mutex
	file *os.File
	o    LogOptions
	seq  int64
	last sequence
	err  error
}

// storedEvent is one line of a log.
type storedEvent struct {
	Event
	Tokens *wireTokens `json:"tokens,omitempty"`
}

// Create begins a new log. It fails with fs.ErrExist where there is a file already.
func Create(path string, o LogOptions) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create event log: %w", err)
	}
	return newWriter(f, o), nil
}

// Resume opens a log that a killed rollout left, cuts off a torn last line, and returns the events in it. The Writer goes
// on after the last of them.
func Resume(path string, o LogOptions) (*Writer, []Event, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("resume event log: %w", err)
	}
	r := newReader(f)
	events, err := r.all()
	if err == nil {
		err = f.Truncate(r.good)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("resume event log %s: %w", path, err), f.Close())
	}
	w := newWriter(f, o)
	w.seq = r.seq
	// The events share their memory with r.last, which the writer is going to overwrite.
	w.last = append(sequence(nil), r.last...)
	return w, events, nil
}

func newWriter(f *os.File, o LogOptions) *Writer {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Writer{file: f, o: o}
}

// Append logs an event. The first one must be a header, and only the first one. Text that is not valid UTF-8 is kept as
// JSON keeps it, with U+FFFD for each wrong byte.
func (w *Writer) Append(e Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	line, err := w.encode(&e)
	if err != nil {
		return fmt.Errorf("append to event log: %w", err)
	}
	// One write per line: a kill between two writes leaves whole lines.
	_, err = w.file.Write(line)
	if err == nil && (w.o.Sync == SyncAlways || w.o.Sync == SyncReplies && (e.Kind == KindReply || e.Kind == KindStop)) {
		err = w.file.Sync()
	}
	if err != nil {
		w.err = fmt.Errorf("append to event log: %w", err)
		return w.err
	}
	w.seq = e.Seq
	if t := e.tokens(); t != nil {
		w.last = w.last.follow(t)
	}
	return nil
}

// encode completes the event and returns its line.
func (w *Writer) encode(e *Event) ([]byte, error) {
	e.Seq = w.seq + 1
	if e.Time.IsZero() {
		e.Time = w.o.Now()
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
	line, err := marshal(stored)
	return append(line, '\n'), err
}

// Close forces the log to the disk, unless the policy is SyncNever, and closes it. A second Close does nothing.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	var err error
	if w.o.Sync != SyncNever {
		err = w.file.Sync()
	}
	err = errors.Join(err, w.file.Close())
	w.file = nil
	if w.err == nil {
		w.err = fmt.Errorf("append to event log: %w", os.ErrClosed)
	}
	if err != nil {
		return fmt.Errorf("close event log: %w", err)
	}
	return nil
}

// ReadEvents returns the events of a log. A torn last line is left out.
func ReadEvents(r io.Reader) ([]Event, error) {
	events, err := newReader(r).all()
	if err != nil {
		return nil, fmt.Errorf("read event log: %w", err)
	}
	return events, nil
}

// reader reads a log's events and remembers what a writer needs to go on after them.
type reader struct {
	in   *bufio.Reader
	seq  int64
	last sequence
	good int64 // bytes up to the end of the last whole event
}

func newReader(r io.Reader) *reader { return &reader{in: bufio.NewReaderSize(r, 64<<10)} }

func (r *reader) all() ([]Event, error) {
	var events []Event
	for {
		e, err := r.next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
}

// next returns io.EOF at the end of the log, and where a torn line ends it.
func (r *reader) next() (Event, error) {
	line, err := r.in.ReadBytes('\n')
	if err != nil {
		// A line without an end is torn, even where it happens to be whole JSON: its writer was not done.
		return Event{}, err
	}
	e, last, err := r.decode(line)
	if err != nil {
		if !json.Valid(line) && r.atEnd() {
			return Event{}, io.EOF
		}
		return Event{}, fmt.Errorf("%w: event %d: %w", ErrLog, r.seq+1, err)
	}
	r.seq, r.last = e.Seq, last
	r.good += int64(len(line))
	return e, nil
}

func (r *reader) atEnd() bool {
	_, err := r.in.Peek(1)
	return errors.Is(err, io.EOF)
}

func (r *reader) decode(line []byte) (Event, sequence, error) {
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
		return Event{}, nil, fmt.Errorf("the log has version %d, this program reads %d: use a newer deepswe", e.Header.Version, LogVersion)
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

// marshal is json.Marshal without its habit of escaping < > &.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// wireTokens is how a log stores a Sample. A prompt nearly always begins with the last prompt and the last completion, so
// only what differs is written: the log of a rollout grows with its length and not with the square of it.
type wireTokens struct {
	// Shared is how many ids the prompt has in common with the beginning of the last prompt plus completion.
	Shared        int       `json:"shared,omitempty"`
	Prompt        []int32   `json:"prompt"`
	Completion    []int32   `json:"completion"`
	Logprobs      []float64 `json:"logprobs,omitempty"`
	PolicyVersion *int64    `json:"policy_version,omitempty"`
}

// sequence is the last prompt plus completion of a log, as its writer or reader has seen it.
type sequence []int32

// pack returns the stored form of the tokens of the next reply.
func (s sequence) pack(t *Sample) *wireTokens {
	shared := s.shared(t.PromptIDs)
	return &wireTokens{
		Shared: shared, Prompt: t.PromptIDs[shared:], Completion: t.CompletionIDs, Logprobs: t.Logprobs,
		PolicyVersion: t.PolicyVersion,
	}
}

// follow returns the sequence after a reply. It overwrites s.
func (s sequence) follow(t *Sample) sequence {
	shared := s.shared(t.PromptIDs)
	return append(append(s[:shared], t.PromptIDs[shared:]...), t.CompletionIDs...)
}

func (s sequence) shared(prompt []int32) int {
	n := min(len(s), len(prompt))
	for i := range n {
		if s[i] != prompt[i] {
			return i
		}
	}
	return n
}

// unpack is the inverse of pack. Prompts that extend one another share their memory.
func (s sequence) unpack(w wireTokens) (*Sample, sequence, error) {
	if w.Shared < 0 || w.Shared > len(s) {
		return nil, nil, fmt.Errorf("prompt shares %d tokens with a sequence of %d", w.Shared, len(s))
	}
	base := s
	if w.Shared < len(s) {
		base = append(make(sequence, 0, len(s)), s[:w.Shared]...)
	}
	prompt := append(base, w.Prompt...)
	next := append(prompt, w.Completion...)
	t := &Sample{
		PromptIDs:     next[:len(prompt):len(prompt)],
		CompletionIDs: next[len(prompt):len(next):len(next)],
		Logprobs:      w.Logprobs,
		PolicyVersion: w.PolicyVersion,
	}
	return t, next, nil
}
