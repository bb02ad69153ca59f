package kubernetes

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"deepswe/env"
	"deepswe/env/fleet"
	"deepswe/env/guest"
	"deepswe/env/repo"
)

// Sandbox is a running pod. Its methods are calls to the guest, over a line that survives the loss of its streams.
type Sandbox struct {
	*env.GuestSandbox

	c       *cluster
	launch  launch
	uid     string
	watched *watched
	line    *guest.Line
	// supervised is closed when supervise has returned; nil before it was started.
	supervised chan struct{}
	tidy       sync.Once
}

var _ env.Sandbox = (*Sandbox)(nil)

func newSandbox(c *cluster, l launch) *Sandbox {
	return &Sandbox{c: c, launch: l, line: guest.NewLine(heartbeat)}
}

// tidyTimeout is how long a guest may take to make its pod removable, which includes the time to reconnect to it.
const tidyTimeout = 20 * time.Second

// Close ends everything that commands have started, and removes the pod. It does so even if the guest does not answer
// any more.
func (s *Sandbox) Close(ctx context.Context) error {
	s.tidy.Do(func() {
		if s.hungUp() {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
		defer cancel()
		if err := s.Tidy(ctx); err != nil {
			s.c.log.Debug("cannot tidy a sandbox", "pod", s.launch.name, "error", err)
		}
	})
	return s.GuestSandbox.Close(ctx)
}

// Claim assigns a sandbox that was started ahead of time to a spec's rollout.
func (s *Sandbox) Claim(_ context.Context, spec env.Spec) { fleet.Assign(&s.launch.spec, spec) }

// abandon removes what a failed start has created.
func (s *Sandbox) abandon(ctx context.Context) error {
	if s.GuestSandbox != nil {
		_ = s.Client.Close()
	}
	s.line.Fail(guest.ErrHungUp)
	_ = s.line.Close()
	if s.supervised != nil {
		<-s.supervised
	}
	return s.delete(ctx)
}

// remove is the part of Close that follows closing the client.
func (s *Sandbox) remove(ctx context.Context) error {
	<-s.supervised
	return s.delete(ctx)
}

// delete deletes the pod, now or later.
func (s *Sandbox) delete(ctx context.Context) error {
	defer s.c.watch.unregister(s.launch.name)
	s.c.watch.mu.Lock()
	created := s.watched.created
	s.c.watch.mu.Unlock()
	if !created {
		return nil
	}
	if err := s.c.removePod(ctx, podID{s.launch.name, s.uid}); err != nil {
		return fmt.Errorf("%w: %s: delete pod %s: %w", env.ErrInfrastructure, s.c.where(), s.launch.name, err)
	}
	return nil
}

// supervise reconnects the line whenever its connection is lost, for as long as the guest waits for that.
func (s *Sandbox) supervise(lost <-chan error) {
	defer close(s.supervised)
	ctx, cancel := context.WithCancel(s.c.life)
	defer cancel()
	s.c.work.Go(func() {
		select {
		case <-s.line.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	var o outage
	opened := time.Now()
	for {
		select {
		case why := <-lost:
			if s.hungUp() {
				return
			}
			s.c.log.Debug("lost the stream to a sandbox", "pod", s.launch.name, "why", why)
			if o.tries == 0 || time.Since(opened) > steady {
				o = outage{since: time.Now()}
			}
			o.why = why
			var err error
			if lost, err = s.reconnect(ctx, &o); err != nil {
				s.line.Fail(err)
				return
			}
			opened = time.Now()
		case <-s.line.Done():
			return
		case <-ctx.Done():
			s.line.Fail(fmt.Errorf("%w: the kubernetes provider is closed", env.ErrInfrastructure))
			return
		}
	}
}

func (s *Sandbox) hungUp() bool {
	select {
	case <-s.line.Done():
		return true
	default:
		return false
	}
}

// outage is the time from the loss of a stream until another one lasts.
type outage struct {
	since time.Time
	tries int
	why   error // the last failure
}

// steady is how long a stream has to last before the next loss counts as another outage. A stream that breaks as soon
// as it is used must not be opened again and again without a pause.
const steady = 5 * time.Second

// reconnect opens another stream to the guest. Its error says why the sandbox is lost.
func (s *Sandbox) reconnect(ctx context.Context, o *outage) (lost <-chan error, err error) {
	const first, longest = 50 * time.Millisecond, 10 * time.Second
	for {
		o.tries++
		if err := s.end(ctx, o.tries); err != nil {
			return nil, err
		}
		if o.tries > 1 {
			if time.Since(o.since) > silence {
				return nil, fmt.Errorf("the stream to the pod %s was lost and could not be restored for %v: %w",
					s.launch.name, silence, o.why)
			}
			_, _, change := s.c.watch.look(s.watched)
			select {
			case <-time.After(jitter(env.Backoff(o.tries-1, first, longest))):
			case <-change:
			case <-ctx.Done():
			}
		}
		if lost, err = s.attach(ctx, false); err == nil {
			if o.tries > 1 {
				s.c.log.Debug("reconnected to a sandbox", "pod", s.launch.name, "tries", o.tries)
			}
			return lost, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		o.why = err
	}
}

// end returns why the pod has ended, or nil if it is not known to have ended. Nodes and the watch report changes up
// to a second late, so after a few tries it asks the server.
func (s *Sandbox) end(ctx context.Context, try int) error {
	p, gone, _ := s.c.watch.look(s.watched)
	if p != nil {
		if err := ended(p); err != nil {
			return s.c.explained(ctx, s.watched, err)
		}
	}
	if gone {
		return deleted(s.launch.name)
	}
	if try%4 != 0 {
		return nil
	}
	var asked pod
	err := s.c.call(ctx, request{
		method: http.MethodGet, path: s.c.pods() + "/" + s.launch.name, into: &asked, once: true,
	})
	switch {
	case refused(err) == http.StatusNotFound:
		return deleted(s.launch.name)
	case err == nil:
		return ended(&asked)
	}
	return nil // a failed request says nothing about the pod
}

// hidden returns the paths below a folder that are empty in the sandbox.
func (s *Sandbox) hidden(dir string) (all []string) {
	for _, f := range s.launch.spec.Shown {
		if below, in := strings.CutPrefix(f.Path, dir+"/"); in && f.Host == "" {
			all = append(all, below)
		}
	}
	return all
}

// copyAndPrepare copies the folders that are shown and the repository into a started sandbox, and runs the spec's
// Prepare commands. The guest is told what of the repository was copied, so that it need not read all of it again for
// the first tree.
func (s *Sandbox) copyAndPrepare(ctx context.Context) error {
	for _, f := range s.launch.spec.Shown {
		if f.Host == "" {
			continue // its volume is empty
		}
		if _, err := s.copyIn(ctx, env.Spec{CopyIn: f.Host, Without: s.hidden(f.Path)}, f.Path); err != nil {
			return err
		}
	}
	if s.launch.spec.CopyIn == "" {
		return s.RunPrepare(ctx, s.launch.spec.Prepare)
	}
	files, err := s.copyIn(ctx, s.launch.spec, s.launch.spec.Dir)
	if err != nil {
		return err
	}
	if err := s.PrepareCopy(ctx, s.launch.spec); err != nil {
		return err
	}
	return s.Remember(ctx, s.launch.spec.Dir, files)
}

// copyIn copies a spec's repository into a folder of the sandbox as one compressed stream, and returns its files.
func (s *Sandbox) copyIn(ctx context.Context, from env.Spec, to string) (files []env.KnownFile, err error) {
	r, w := io.Pipe()
	var packing sync.WaitGroup
	packing.Go(func() {
		compressed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err == nil {
			tw := tar.NewWriter(compressed)
			files, err = repo.Pack(ctx, tw, from, "", 0, 0)
			err = errors.Join(err, tw.Close(), compressed.Close())
		}
		w.CloseWithError(err)
	})
	err = s.Unpack(ctx, to, r)
	r.Close()
	packing.Wait()
	if err != nil {
		return nil, fmt.Errorf("copy in %s: %w", to, err)
	}
	return files, nil
}
