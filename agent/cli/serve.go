package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Serve answers HTTP requests at an address, such as 127.0.0.1:8080 or, for any free port, 127.0.0.1:0. It returns
// the actual address, and a function that stops the server: stop gives running requests two seconds, and returns when
// no goroutine is left.
func Serve(address string, h http.Handler) (at net.Addr, stop func() error, err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, err
	}
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
	}
	var wg sync.WaitGroup
	var served error
	wg.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			served = fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
	})
	return l.Addr(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		err := s.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.Close()
		}
		wg.Wait()
		return errors.Join(err, served)
	}, nil
}
