package llm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// The maximum sizes in bytes of a line of an event stream, and of the whole stream: an event carries a few letters
// and takes some hundred bytes.
const (
	maxEvent  = 4 << 20
	maxStream = 256 << 20
)

// events reads the events of a stream.
type events struct {
	body  io.Closer
	in    *bufio.Reader
	alive func()
	left  int64 // bytes that may still come
	done  bool  // the end mark was read
	err   error
}

// errorEvent is the error of a server that gives up in the middle of a stream.
type errorEvent struct{ payload []byte }

func (e *errorEvent) Error() string { return "the stream ended with an error: " + string(e.payload) }

// Close reads the few bytes that may follow the end mark first: only a stream that was read to its end leaves a
// connection that the next request can use.
func (e *events) Close() error {
	if e.done {
		late := time.AfterFunc(50*time.Millisecond, func() { e.body.Close() })
		_, _ = io.CopyN(io.Discard, e.in, 4<<10)
		late.Stop()
	}
	return e.body.Close()
}

// nextEvent returns the data of the next event. The error is io.EOF after the end mark, io.ErrUnexpectedEOF if the
// stream ends without it, and an errorEvent if the server reports an error. Comments are skipped. A last line without a
// line break counts if it is complete otherwise.
func (e *events) nextEvent() ([]byte, error) {
	for e.err == nil {
		var line []byte
		line, e.err = e.line()
		if len(line) > 0 {
			e.alive()
		}
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:"))
		data = bytes.TrimSpace(data)
		switch {
		case !ok || len(data) == 0:
		case string(data) == "[DONE]":
			e.done, e.err = true, io.EOF
		case isError(data):
			e.err = &errorEvent{payload: data}
		case e.err == nil || json.Valid(data):
			return data, nil
		}
	}
	if e.err == io.EOF && !e.done {
		return nil, io.ErrUnexpectedEOF
	}
	return nil, e.err
}

// isError reports whether an event is an error rather than a piece of the answer.
func isError(data []byte) bool {
	if !bytes.Contains(data, []byte(`"error"`)) {
		return false
	}
	var event struct {
		Error  json.RawMessage
		Object string
	}
	if json.Unmarshal(data, &event) != nil {
		return false
	}
	return event.Object == "error" || len(event.Error) > 0 && string(event.Error) != "null"
}

func (e *events) line() ([]byte, error) {
	var line []byte
	for {
		part, err := e.in.ReadSlice('\n')
		line = append(line, part...)
		if e.left -= int64(len(part)); e.left < 0 {
			return nil, tooLarge(maxStream)
		}
		if len(line) > maxEvent {
			return nil, fmt.Errorf("%w: a line of the stream is longer than %d MiB", errUnusable, maxEvent>>20)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
