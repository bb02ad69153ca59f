package fleet

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/env"
)

// resort is a provider whose sandboxes are named after its places.
type resort struct {
	env.Provider
	places string
	// full makes starts wait until their context ends.
	full bool

	mu     sync.Mutex
	closed bool
}

type cabin struct {
	env.Sandbox
	at string
}

func (c cabin) Dir() string { return c.at }

func (c cabin) Close(context.Context) error { return nil }

func (r *resort) Start(ctx context.Context, _ env.Spec) (env.Sandbox, error) {
	if r.full {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return cabin{at: r.places}, nil
}

func (r *resort) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}

func (r *resort) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// followed is a provider that follows a file, with what it has opened and logged.
type followed struct {
	*Following
	file   string
	opened []*resort
	log    bytes.Buffer
}

// following starts with the place a. Providers of the place "full" start nothing, and none can be opened for "down".
func following(t *testing.T, first string) *followed {
	f := &followed{file: filepath.Join(t.TempDir(), "places")}
	f.name(t, first)
	following, err := Follow(t.Context(), FollowOptions{
		File: f.file, Log: slog.New(slog.NewTextHandler(&f.log, nil)), Every: time.Second,
		Open: func(_ context.Context, places []string) (env.Provider, error) {
			r := &resort{places: strings.Join(places, "+"), full: places[0] == "full"}
			if places[0] == "down" {
				return nil, errors.New("nobody answers")
			}
			f.opened = append(f.opened, r)
			return r, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Following = following
	return f
}

// name writes the places to the file while nobody reads it, and waits until it has been read.
func (f *followed) name(t *testing.T, places ...string) {
	t.Helper()
	synctest.Wait()
	if err := os.WriteFile(f.file, []byte("# places\n"+strings.Join(places, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f.Following != nil {
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
	}
}

func (f *followed) start(t *testing.T) env.Sandbox {
	t.Helper()
	s, err := f.Start(t.Context(), env.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Sandboxes start where the file says at the moment. A place that is no longer named is in use until its last sandbox
// is closed, and no longer.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := following(t, "a")
		old := f.start(t)
		f.name(t, "b", "c")
		if s := f.start(t); s.Dir() != "b+c" || f.opened[0].isClosed() {
			t.Errorf("the sandbox is in %s, and that of a has lost its provider: %v", s.Dir(), f.opened[0].isClosed())
		}
		for range 2 { // Close may be called again
			if err := old.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if synctest.Wait(); !f.opened[0].isClosed() || f.opened[1].isClosed() {
			t.Error("the provider of a is still open, or that of b and c is closed")
		}
		if err := f.Close(); err != nil || !f.opened[1].isClosed() {
			t.Errorf("%v, and the last provider is closed: %v", err, f.opened[1].isClosed())
		}
	})
}

// A file that names nothing, is gone, or names what does not answer changes nothing and is said once. It is read again.
func TestFollowNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := following(t, "a")
		f.name(t)
		f.name(t, "down")
		time.Sleep(time.Minute)
		if s := f.start(t); s.Dir() != "a" {
			t.Errorf("the sandbox is in %s", s.Dir())
		}
		for _, want := range []string{"names nothing", "nobody answers"} {
			if n := strings.Count(f.log.String(), want); n != 1 {
				t.Errorf("%q is logged %d times:\n%s", want, n, f.log.String())
			}
		}
		f.name(t, "b")
		if s := f.start(t); s.Dir() != "b" {
			t.Errorf("the sandbox is in %s", s.Dir())
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A start that waits for room in a place begins again elsewhere when the place is no longer named.
func TestFollowWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := following(t, "full")
		started := make(chan env.Sandbox)
		go func() {
			s, err := f.Start(t.Context(), env.Spec{})
			if err != nil {
				t.Error(err)
			}
			started <- s
		}()
		f.name(t, "b")
		if s := <-started; s.Dir() != "b" || !f.opened[0].isClosed() {
			t.Errorf("the sandbox is in %s, and the full provider is closed: %v", s.Dir(), f.opened[0].isClosed())
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}
