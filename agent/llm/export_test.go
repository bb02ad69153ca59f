package llm

import (
	"context"
	"time"

	"deepswe/agent"
	"deepswe/tools"
)

// Endpoint returns the base URL that requests go to, without credentials.
func (c *Client) Endpoint() string { return c.name }

// SetSleep replaces the wait between attempts.
func (c *Client) SetSleep(sleep func(ctx context.Context, d time.Duration) error) { c.sleep = sleep }

// CloseIdleConnections closes the unused connections.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// Rendered returns the ids that the server's chat template makes of a conversation.
func (c *Client) Rendered(ctx context.Context, messages []agent.Message, specs []tools.Spec) ([]int32, error) {
	return c.tokenize(ctx, patience{}, newTokenizeBody(c.o.Model, messages, specs, false))
}

// Text returns the text of ids.
func (c *Client) Text(ctx context.Context, ids []int32) (string, error) {
	return c.detokenize(ctx, patience{}, c.o.Model, ids)
}
