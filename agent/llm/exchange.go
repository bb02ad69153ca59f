package llm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"deepswe/env/disk"
)

// The most that is read of one answer. A completion of 128k tokens is half a megabyte of text, and some 30 MB with
// ids, logprobs and the prompt's ids. A larger answer comes from a server that malfunctions, and would be as large
// again.
const (
	maxAnswer = 16 << 20
	maxTokens = 64 << 20
	// maxRefusal is the most that is read of an answer with an error status.
	maxRefusal = 1 << 20
)

// tooLarge is the error for a response that is larger than any valid one.
func tooLarge(most int64) error {
	return fmt.Errorf("%w: it is larger than %d MiB", errUnusable, most>>20)
}

// exchange is the HTTP layer below go-openai, for one request: it sends its own body and keeps the answer, see the
// package documentation. An answer that is not streamed is read to its end, so that a connection that breaks is an
// error here.
type exchange struct {
	http  *http.Client
	body  any // nil for a GET
	watch *watchdog
	// streams is set if a streamed answer is asked for, tokens if the answer has token ids or logprobs.
	streams, tokens bool

	status int
	header http.Header
	raw    []byte  // the answer; nil while a stream is read
	events *events // the stream; nil when there is none
}

// ok reports whether the endpoint answered with success.
func (x *exchange) ok() bool { return x.status >= 200 && x.status < 300 }

// Do implements go-openai's HTTPDoer. The library gets an empty answer.
func (x *exchange) Do(req *http.Request) (*http.Response, error) {
	if err := x.encode(req); err != nil {
		return nil, err
	}
	resp, err := x.http.Do(req)
	if err != nil {
		return nil, err
	}
	x.status, x.header = resp.StatusCode, resp.Header
	answer := resp.Body
	resp.Body = http.NoBody
	in := bufio.NewReaderSize(answer, 32<<10)
	if x.ok() && x.streams && !whole(in) {
		x.events = &events{body: answer, in: in, alive: x.watch.alive, left: maxStream}
		return resp, nil
	}
	defer answer.Close()
	most := int64(maxAnswer)
	switch {
	case !x.ok():
		most = maxRefusal
	case x.tokens:
		most = maxTokens
	}
	raw, err := io.ReadAll(io.LimitReader(in, most+1))
	switch over := int64(len(raw)) > most; {
	case over && x.ok():
		return nil, tooLarge(most)
	case over: // its status says enough
		raw = raw[:most]
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	x.raw = raw
	return resp, nil
}

// encode replaces the library's body by our own.
func (x *exchange) encode(req *http.Request) error {
	req.Header.Set("User-Agent", "deepswe")
	if x.body == nil {
		return nil
	}
	raw, err := disk.MarshalJSON(x.body)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	req.ContentLength = int64(len(raw))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
	req.Body, err = req.GetBody()
	return err
}

// whole reports whether an answer is JSON or a web page rather than a stream of events, judged by its first byte that
// is not whitespace: content types are wrong or missing too often.
func whole(in *bufio.Reader) bool {
	for n := 1; n <= 64; n++ {
		ahead, err := in.Peek(n)
		if err != nil {
			return false // the error comes back when the stream is read
		}
		switch ahead[n-1] {
		case ' ', '\t', '\r', '\n':
		case '{', '[', '<':
			return true
		default:
			return false
		}
	}
	return false
}

// errSilent ends a request that waited too long for the endpoint.
var errSilent = errors.New("no answer in time")

// watchdog ends a request if the endpoint has been silent for too long. There is no limit on the total time, because a
// long response that keeps coming is fine.
type watchdog struct {
	timer *time.Timer
	end   context.CancelCauseFunc
}

// watch returns a context that ends with errSilent unless alive is called within patience, and then again within idle.
func watch(ctx context.Context, patience time.Duration) (context.Context, *watchdog) {
	ctx, end := context.WithCancelCause(ctx)
	w := &watchdog{end: end}
	w.wait(patience)
	return ctx, w
}

func (w *watchdog) wait(patience time.Duration) {
	w.timer = time.AfterFunc(patience, func() { w.end(fmt.Errorf("%w: silent for %s", errSilent, patience)) })
}

func (w *watchdog) alive() {
	if w.timer.Stop() {
		w.wait(idle)
	}
}

func (w *watchdog) stop() {
	w.timer.Stop()
	w.end(nil)
}
