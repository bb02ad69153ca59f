package forge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"deepswe/env"
)

// Options configure a [Client]. The zero value reads what is public.
type Options struct {
	// Getenv reads the variables that hold tokens, and those that name the server to which a token belongs; nil means
	// that there are none.
	Getenv func(string) string
	// API replaces the API's URL (DEEPSWE_GITHUB_API), for proxies and tests. By default, it is derived from the web
	// page's URL. One that ends in /api/v1 is Gitea's, in /api/v4 GitLab's, any other GitHub's.
	API string
	// Sleep waits before a retry; nil means env.Sleep.
	Sleep func(ctx context.Context, d time.Duration) error
	// Log receives warnings for the user; nil discards them.
	Log *slog.Logger
}

// Client reads from forges and writes to them. It is safe for concurrent use.
type Client struct {
	o        Options
	override *url.URL // of the API; nil means that it follows from the host

	mu    sync.Mutex
	sites map[string]site // by scheme and host
}

// New returns a client. It does not send anything yet.
func New(o Options) (*Client, error) {
	c := &Client{o: o, sites: map[string]site{}}
	c.o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.API != "" {
		u, err := url.Parse(strings.TrimRight(o.API, "/"))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
			return nil, fmt.Errorf("invalid DEEPSWE_GITHUB_API %q (for example https://api.github.com)", o.API)
		}
		c.override = u
	}
	if o.Getenv == nil {
		c.o.Getenv = func(string) string { return "" }
	}
	if o.Sleep == nil {
		c.o.Sleep = env.Sleep
	}
	for _, name := range tokenNames {
		if strings.ContainsFunc(strings.TrimSpace(c.o.Getenv(name)), func(r rune) bool { return r < '!' || r > '~' }) {
			return nil, errors.New(name + " contains invalid characters")
		}
	}
	return c, nil
}

// mayCarry reports whether a token may be sent to u: over an encrypted connection, or to this machine.
func mayCarry(u *url.URL) bool { return u.Scheme == "https" || loopback(u.Hostname()) }

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
