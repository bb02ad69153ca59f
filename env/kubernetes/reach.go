package kubernetes

import (
	"context"
	"fmt"
	"io"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
)

// tryEvery is the time between attempts to reach a guest. Nodes report up to a second late that a container runs.
const tryEvery = 150 * time.Millisecond

// connect connects to the guest of a new pod, and waits for its greeting. From the first stream on, lost ones are
// replaced.
func (s *Sandbox) connect(ctx context.Context) error {
	lost, err := s.reach(ctx)
	if err != nil {
		return err
	}
	s.supervised = make(chan struct{})
	s.c.work.Go(func() { s.supervise(lost) })
	client, err := guest.Connect(ctx, s.line)
	if err != nil {
		return err
	}
	s.GuestSandbox = env.NewGuestSandbox(client, s.remove)
	return nil
}

// reach connects the line of a new pod as soon as its guest can be reached.
func (s *Sandbox) reach(ctx context.Context) (lost <-chan error, err error) {
	c := s.c
	var since time.Time
	for try := 0; ; try++ {
		p, gone, change := c.watch.look(s.watched)
		if gone {
			<-ctx.Done() // oversee reports why
			return nil, context.Cause(ctx)
		}
		if p == nil || p.Spec.NodeName == "" {
			select {
			case <-change:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			continue
		}
		if since.IsZero() {
			since = time.Now()
			if err := env.Sleep(ctx, c.headStart()); err != nil {
				return nil, err
			}
		}
		if err := env.Sleep(ctx, c.dials.Reserve().Delay()); err != nil {
			return nil, err
		}
		if lost, err = s.attach(ctx, c.options.Pods.GuestImage == ""); err == nil {
			c.learn(time.Since(since))
			return lost, nil
		}
		c.log.Debug("cannot reach the guest yet", "pod", s.launch.name, "error", err)
		if env.Sleep(ctx, jitter(env.Backoff(try/4+1, tryEvery*4/3, 2*time.Second))) != nil {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// headStart returns how long to wait after a pod was scheduled before trying to reach it, because failing attempts
// cost the API server and the node more than the wait.
func (c *cluster) headStart() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.learnt * 6 / 10
}

func (c *cluster) learn(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.learnt == 0, took < c.learnt:
		c.learnt = took
	default:
		c.learnt += (min(took, 10*time.Second) - c.learnt) / 8
	}
}

// attach opens a stream to the guest and makes it the line's connection.
func (s *Sandbox) attach(ctx context.Context, inject bool) (lost <-chan error, err error) {
	var conn io.ReadWriteCloser
	if inject {
		conn, err = s.c.inject(ctx, s.launch.name)
	} else {
		conn, err = s.c.exec(ctx, s.launch.name, bridgeCommand()...)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, guest.HandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	lost, err = s.line.Attach(conn)
	if !stop() && err == nil {
		return nil, context.Cause(ctx)
	}
	return lost, err
}
