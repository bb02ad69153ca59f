package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// The channels of a stream; the first byte of every message is one of them.
const (
	channelStdin  = 0
	channelStdout = 1
	channelStderr = 2
	channelStatus = 3
)

// streamProtocol is the WebSocket protocol of exec since Kubernetes 1.30.
const streamProtocol = "v5.channel.k8s.io"

// dialTimeout limits opening a stream. Through a cluster's proxies it can take seconds.
const dialTimeout = 20 * time.Second

// stream is the standard input and output of a process that the API server has started in a pod. Only one goroutine
// may read.
type stream struct {
	conn   *websocket.Conn
	ctx    context.Context
	cancel context.CancelFunc

	message io.Reader // the rest of the current message
	stderr  bytes.Buffer

	writing sync.Mutex
	packet  []byte
}

// exec starts a command in a pod's container. Success means only that the API server has accepted it; the server
// contacts the node afterwards.
func (c *cluster) exec(ctx context.Context, pod string, command ...string) (*stream, error) {
	query := url.Values{
		"container": {mainContainer}, "command": command, "stdin": {"true"}, "stdout": {"true"}, "stderr": {"true"},
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	//nolint:bodyclose // the body belongs to the connection, or has been read where there is none
	conn, answer, err := websocket.Dial(ctx, c.address(c.pods()+"/"+pod+"/exec", query), &websocket.DialOptions{
		HTTPClient: c.upgrade, Subprotocols: []string{streamProtocol},
	})
	if err != nil {
		if answer != nil && answer.StatusCode != http.StatusSwitchingProtocols && answer.Body != nil {
			return nil, fmt.Errorf("open a stream: %w", readStatus(answer))
		}
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	if conn.Subprotocol() != streamProtocol {
		_ = conn.CloseNow()
		return nil, fmt.Errorf("open a stream: the API server does not speak %s: it is older than Kubernetes 1.30, or a "+
			"proxy in between changes the request", streamProtocol)
	}
	conn.SetReadLimit(-1) // no limit: messages are read in pieces
	s := &stream{conn: conn}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return s, nil
}

// Read reads standard output. Its final error says how the process ended.
func (s *stream) Read(p []byte) (int, error) {
	for {
		if s.message != nil {
			n, err := s.message.Read(p)
			if err == io.EOF {
				s.message, err = nil, nil
			}
			if n > 0 || err != nil || len(p) == 0 {
				return n, err
			}
			continue
		}
		if err := s.nextMessage(); err != nil {
			return 0, err
		}
	}
}

// nextMessage reads up to and including the next message that carries standard output.
func (s *stream) nextMessage() error {
	_, r, err := s.conn.Reader(s.ctx)
	if err != nil {
		return fmt.Errorf("the stream to the pod broke: %w", s.withStderr(err))
	}
	var channel [1]byte
	if _, err := io.ReadFull(r, channel[:]); err != nil {
		return fmt.Errorf("the stream to the pod broke: %w", err)
	}
	switch channel[0] {
	case channelStdout:
		s.message = r
		return nil
	case channelStderr:
		const most = 2 << 10
		_, err = io.Copy(&s.stderr, r)
		s.stderr.Next(max(s.stderr.Len()-most, 0))
		return err
	case channelStatus:
		said, err := io.ReadAll(io.LimitReader(r, 64<<10))
		if err != nil {
			return err
		}
		return s.withStderr(endOf(said))
	}
	_, err = io.Copy(io.Discard, r)
	return err
}

// withStderr adds the process's standard error to err.
func (s *stream) withStderr(err error) error {
	if said := strings.TrimSpace(s.stderr.String()); said != "" {
		return fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// endOf returns the last message of a stream as an error. A success is no proof that the process has ended, let alone
// well: the API server reports one, too, if its own connection to the node was cut (see docs/kubernetes.md).
func endOf(said []byte) error {
	var end statusError
	if err := json.Unmarshal(said, &end); err != nil || end.Status == "" {
		return fmt.Errorf("the stream to the pod ended: %.300s", said)
	}
	if end.Status == "Success" {
		return errors.New("the stream to the pod was closed")
	}
	return fmt.Errorf("the stream to the pod ended: %s", end.Message)
}

// Write writes to standard input.
func (s *stream) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.packet = append(append(s.packet[:0], channelStdin), p...)
	if err := s.conn.Write(s.ctx, websocket.MessageBinary, s.packet); err != nil {
		return 0, err
	}
	if cap(s.packet) > 4<<10 {
		s.packet = nil // saves memory: hundreds of streams are mostly idle
	}
	return len(p), nil
}

// Close ends the stream and the process's standard input.
func (s *stream) Close() error {
	s.cancel()
	_ = s.conn.CloseNow() // fails where it is closed already
	return nil
}
