package acp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"deepswe/env/disk"
)

// maxLine is the maximum length of a message in bytes.
const maxLine = 32 << 20

// message is any message of JSON-RPC.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"` // as it came
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// incoming is a message whose content is still to be read.
type incoming struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *Error          `json:"error"`
}

// Error is an error of JSON-RPC.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// conn exchanges messages. Both sides make requests.
type conn struct {
	in  *bufio.Reader
	out io.Writer

	write   sync.Mutex // held for a whole line
	mu      sync.Mutex
	next    int
	waiting map[string]chan incoming // requests of ours, by their IDs
}

func newConn(in io.Reader, out io.Writer) *conn {
	return &conn{in: bufio.NewReader(in), out: out, waiting: map[string]chan incoming{}}
}

// send writes a message. An error means that the other side is gone, which read notices as well.
func (c *conn) send(m message) error {
	m.Version = "2.0"
	c.write.Lock()
	defer c.write.Unlock()
	return disk.EncodeJSON(c.out, m)
}

func (c *conn) notify(method string, params any) { _ = c.send(message{Method: method, Params: params}) }

func (c *conn) answer(id json.RawMessage, result any, err error) {
	m := message{ID: id, Result: result}
	if err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			e = &Error{Code: codeInternal, Message: err.Error()}
		}
		m.Result, m.Error = nil, e
	} else if result == nil {
		m.Result = struct{}{}
	}
	_ = c.send(m)
}

// call makes a request, and waits for the answer or the end of ctx.
func (c *conn) call(ctx context.Context, method string, params, into any) error {
	c.mu.Lock()
	c.next++
	id := strconv.Itoa(c.next)
	answered := make(chan incoming, 1)
	c.waiting[id] = answered
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	if err := c.send(message{ID: json.RawMessage(id), Method: method, Params: params}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case m := <-answered:
		if m.Error != nil {
			return m.Error
		}
		if into == nil || len(m.Result) == 0 {
			return nil
		}
		return json.Unmarshal(m.Result, into)
	}
}

// read hands every request and notification to handle, in their order, until the other side is gone. Answers go to
// the calls that wait for them.
func (c *conn) read(handle func(incoming)) error {
	for {
		var m incoming
		line, err := disk.ReadLine(c.in, nil, maxLine)
		line = bytes.TrimSpace(line)
		ended := errors.Is(err, io.EOF) // perhaps in the middle of a line
		switch {
		case errors.Is(err, disk.ErrLongLine):
			text := fmt.Sprintf("a message is longer than %d MiB", maxLine>>20)
			c.answer(json.RawMessage("null"), nil, &Error{codeInvalid, text})
			continue
		case err != nil && !ended:
			return err
		case len(line) == 0 && ended:
			return nil
		case len(line) == 0:
			continue
		}
		switch err = json.Unmarshal(line, &m); {
		case err != nil:
			c.answer(json.RawMessage("null"), nil, &Error{codeParse, "that is no JSON: " + err.Error()})
		case m.Method != "":
			handle(m)
		case len(m.ID) > 0:
			c.mu.Lock()
			answered := c.waiting[string(m.ID)]
			delete(c.waiting, string(m.ID))
			c.mu.Unlock()
			if answered != nil {
				answered <- m
			}
		default:
			c.answer(json.RawMessage("null"), nil, &Error{codeInvalid, "that is neither a request nor an answer"})
		}
	}
}

// decode reads the parameters of a request.
func decode(params json.RawMessage, into any) error {
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	if err := json.Unmarshal(params, into); err != nil {
		return &Error{codeParams, "invalid parameters: " + err.Error()}
	}
	return nil
}
