package setup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"deepswe/env"
	"deepswe/env/repo"
)

// timeout is how long one command may take.
const timeout = env.PrepareTimeout

// port is the proxy's port inside a sandbox, which has a loopback interface of its own.
const port = 3128

// every is how often progress is reported while a command runs.
const every = time.Second

// Sandbox is the part of a sandbox that a set-up needs.
type Sandbox interface {
	Run(ctx context.Context, c env.Command) (env.Result, error)
	Listen(ctx context.Context, port int) (net.Listener, error)
}

// Run runs a set-up's commands in the sandbox, which reach the network through a proxy. If open is set, the sandbox has
// a network of its own, and gets no proxy.
func Run(ctx context.Context, sb Sandbox, how env.Setup, open bool) error {
	report := how.Progress
	if report == nil {
		report = func(env.SetupProgress) {}
	}
	var reports sync.Mutex
	at := env.SetupProgress{Steps: len(how.Commands)}
	tell := func(change func(*env.SetupProgress)) {
		reports.Lock()
		defer reports.Unlock()
		change(&at)
		report(at)
		at.Refused = ""
	}
	p := newProxy(func(host string) { tell(func(s *env.SetupProgress) { s.Refused = host }) })
	variables := slices.Concat(how.Env, gitOverHTTPS(), npmSettings())
	if !open {
		stop, err := p.serve(ctx, sb)
		if err != nil {
			return err
		}
		defer stop()
		variables = append(variables, proxied()...)
	}
	for i, line := range how.Commands {
		tell(func(s *env.SetupProgress) { s.Step, s.Command, s.Received = i+1, line, p.received.Load() })
		tick := ticking(func() { tell(func(s *env.SetupProgress) { s.Received = p.received.Load() }) })
		result, err := sb.Run(ctx, env.Command{Line: line, Env: variables, Timeout: timeout, EndAll: true})
		tick()
		if err != nil {
			return fmt.Errorf("set up: %w", err)
		}
		if result.ExitCode != 0 || result.TimedOut {
			return &env.SetupError{Step: i + 1, Steps: len(how.Commands), Line: line, Result: result}
		}
	}
	return nil
}

// ticking calls f repeatedly until stop is called.
func ticking(f func()) (stop func()) {
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				f()
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		work.Wait()
	}
}

// serve starts the proxy inside the sandbox.
func (p *proxy) serve(ctx context.Context, sb Sandbox) (stop func(), err error) {
	l, err := sb.Listen(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("give the set-up a network: %w", err)
	}
	life, end := context.WithCancel(ctx)
	server := &http.Server{
		Handler: p.handler(), ReadHeaderTimeout: dialTimeout, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return life },
	}
	var work sync.WaitGroup
	work.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			end() // the sandbox is gone, which its commands report
		}
	})
	return func() {
		end()
		_ = server.Close() // closes the listener and every connection
		_ = l.Close()      // waits for them
		work.Wait()
	}, nil
}

// proxied returns the environment variables with which package managers find the proxy.
func proxied() []string {
	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	var variables []string
	for _, key := range []string{
		"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "YARN_HTTP_PROXY", "YARN_HTTPS_PROXY",
	} {
		variables = append(variables, key+"="+address)
	}
	const local = "localhost,127.0.0.1,::1"
	java := ""
	for _, scheme := range []string{"http", "https"} {
		java += fmt.Sprintf("-D%s.proxyHost=127.0.0.1 -D%s.proxyPort=%d ", scheme, scheme, port)
	}
	// Maven uses Java's proxy settings only if asked to: since 3.9 by the first of these properties, since 4 by the
	// second.
	java += "-Daether.connector.http.useSystemProperties=true -Daether.transport.apache.useSystemProperties=true"
	return append(variables, "NO_PROXY="+local, "no_proxy="+local, "JAVA_TOOL_OPTIONS="+java)
}

// gitOverHTTPS returns the environment variables with which git fetches over HTTPS what manifests name by SSH, which no
// proxy carries, and for which nobody has a key.
func gitOverHTTPS() []string {
	var settings [][2]string
	for _, prefix := range []string{"ssh://git@github.com/", "git@github.com:", "git://github.com/"} {
		settings = append(settings, [2]string{"url.https://github.com/.insteadOf", prefix})
	}
	return repo.Settings(settings)
}

// npmSettings returns the environment variables with which npm gives up earlier on what it does not reach, which it
// tries three times, and does not report on what nobody looks at. By default, it waits 140 seconds for a git server.
func npmSettings() []string {
	return []string{
		"npm_config_fetch_retry_mintimeout=1000", "npm_config_fetch_retry_maxtimeout=10000", "npm_config_audit=false",
		"npm_config_fund=false", "npm_config_update_notifier=false",
	}
}
