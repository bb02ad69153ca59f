package tinker

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Heartbeats. A server unloads the models of a session that has been silent for 300 s.
const (
	beatEvery   = 10 * time.Second
	beatTimeout = 10 * time.Second
)

// session is a client's presence on the server. A goroutine keeps it alive until close; it has a connection of its own,
// so that no upload and no long poll can hold it up.
type session struct {
	client *Client
	id     string
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// newSession creates a session and keeps it alive. One that is created twice because a reply was lost is no harm:
// nobody keeps it.
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

// beat tells the server every few seconds that the session lives.
func (s *session) beat(ctx context.Context) {
	h := s.client.newHTTP(false)
	defer h.CloseIdleConnections()
	body := []byte(`{"session_id":"` + s.id + `","type":"session_heartbeat"}`)
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	silent := 0
	for {
		a, _, err := s.client.send(ctx, h, http.MethodPost, "session_heartbeat", body, beatTimeout)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && a.status < 300:
			silent = 0
		default:
			// What is lost shows in the next operation, and is handled there.
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

// close ends the heartbeats; the server forgets the session when it has been silent for long enough.
func (s *session) close() {
	s.stop()
	s.done.Wait()
}
