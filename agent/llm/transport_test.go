package llm_test

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// inMemory carries requests to a handler without a network, so that a test can run under testing/synctest, where an
// hour of silence takes no time. The handler runs in a goroutine that ends with it.
func inMemory(h http.Handler) http.RoundTripper { return transport{h} }

type transport struct{ handler http.Handler }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	in, out := io.Pipe()
	w := &pipeWriter{body: out, header: http.Header{}, sent: make(chan struct{})}
	served := req.Clone(req.Context())
	if served.Body == nil {
		served.Body = http.NoBody
	}
	go func() {
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				w.abort(io.ErrUnexpectedEOF)
				return
			}
			w.WriteHeader(http.StatusOK)
			_ = out.Close()
		}()
		t.handler.ServeHTTP(w, served)
	}()
	select {
	case <-w.sent:
	case <-req.Context().Done():
		in.CloseWithError(req.Context().Err())
		return nil, req.Context().Err()
	}
	if w.failed != nil {
		return nil, w.failed
	}
	left := make(chan struct{})
	body := &pipeBody{PipeReader: in, left: left}
	go func() { // a real connection's reads end with the context, too
		select {
		case <-req.Context().Done():
			in.CloseWithError(req.Context().Err())
		case <-left:
		}
	}()
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: body, ContentLength: -1, Request: req,
	}, nil
}

// pipeBody signals when it is closed.
type pipeBody struct {
	*io.PipeReader
	left chan struct{}
	once sync.Once
}

func (b *pipeBody) Close() error {
	b.once.Do(func() { close(b.left) })
	return b.PipeReader.Close()
}

// pipeWriter is the handler's side. sent is closed when the header is known, or when the handler has given up before.
type pipeWriter struct {
	body   *io.PipeWriter
	header http.Header
	status int
	once   sync.Once
	sent   chan struct{}
	failed error
}

func (w *pipeWriter) Header() http.Header {
	select {
	case <-w.sent: // too late, and the client reads the other header
		return http.Header{}
	default:
		return w.header
	}
}

func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status = status
		close(w.sent)
	})
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

func (w *pipeWriter) FlushError() error { return nil }

func (w *pipeWriter) abort(err error) {
	w.once.Do(func() {
		w.failed = errors.New("the connection was closed before an answer")
		close(w.sent)
	})
	w.body.CloseWithError(err)
}
