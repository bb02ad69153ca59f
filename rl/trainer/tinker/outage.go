package tinker

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// outage is a time in which the server answers no request at all. Heartbeats are requests, too, so that it ends within
// beatEvery after the server is back, whatever the run waits for.
type outage struct {
	log *slog.Logger

	mu    sync.Mutex
	began time.Time // when a request was not answered first; zero while the server answers
	said  time.Time // time of the last warning about it; zero if there was none
}

// outageNoted is how long the server is silent before there is a warning. Another one comes after each remindEvery.
const outageNoted = 10 * time.Second

// observe records whether the server has answered a request. A proxy's answer that it cannot reach the server is none.
func (o *outage) observe(status int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil && (status < http.StatusBadGateway || status > http.StatusGatewayTimeout):
		if !o.said.IsZero() {
			o.log.Info("the trainer is back", "after", now.Sub(o.began).Round(time.Second))
		}
		o.began, o.said = time.Time{}, time.Time{}
	case o.began.IsZero():
		o.began = now
	case now.Sub(o.began) >= outageNoted && now.Sub(o.said) >= remindEvery:
		o.said = now
		o.log.Warn("the trainer does not answer", "for", now.Sub(o.began).Round(time.Second), "status", status, "error", err)
	}
}
