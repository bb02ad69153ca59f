package llm

import (
	"context"
	"time"
)

// SetSleep replaces the wait between attempts.
func (c *Client) SetSleep(sleep func(ctx context.Context, d time.Duration) error) { c.sleep = sleep }

// CloseIdleConnections closes the connections that no request uses.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }
