package tinker

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Times of heartbeats. A server unloads the models of a session without heartbeats after 300 s.
const (
	beatEvery   = 10 * time.Second
	beatTimeout = 10 * time.Second
)

// session is a session on the server. A goroutine keeps it alive until close, over a connection of its own, so that
// neither uploads nor long polls delay it.
type session struct {
	client *Client
	id     string
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// newSession creates a session and keeps it alive. If a response is lost, it may create two; the server drops the one
// without heartbeats.
func (c *Client) newSession(ctx context.Context) (*session, error) {
	var reply struct {
		ID      string `json:"session_id"`
		Info    string `json:"info_message"`
		Warning string `json:"warning_message"`
		Error   string `json:"error_message"`
	}
	in := map[string]any{
		"tags": []string{"deepswe"}, "sdk_version": "deepswe", "user_metadata": map[string]string{}, "type": "create_session",
	}
	if err := c.call(ctx, "create_session", in, &reply, true); err != nil {
		return nil, err
	}
	c.accepted.Store(true)
	if reply.Error != "" || reply.ID == "" {
		return nil, &Error{Operation: "create_session", Kind: ErrInvalid, Detail: detailOf([]byte(reply.Error))}
	}
	for _, text := range []string{reply.Info, reply.Warning} {
		if text != "" {
			c.log.Info("the trainer says: " + detailOf([]byte(text)))
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &session{client: c, id: reply.ID, stop: stop}
	s.done.Go(func() { s.beat(ctx) })
	return s, nil
}

func (s *session) beat(ctx context.Context) {
	h := s.client.newHTTP(false)
	defer h.CloseIdleConnections()
	body := []byte(`{"session_id":"` + s.id + `","type":"session_heartbeat"}`)
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	silent := 0
	for {
		a, _, err := s.client.send(ctx, h, http.MethodPost, "session_heartbeat", content{data: body}, beatTimeout)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && a.status < 300:
			silent = 0
		default:
			// If the session is lost, the next operation fails and handles that.
			if silent++; silent == 3 {
				s.client.log.Warn("the trainer does not take heartbeats; it may drop the model",
					"status", a.status, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// close ends the heartbeats, so that the session expires.
func (s *session) close() {
	s.stop()
	s.done.Wait()
}
