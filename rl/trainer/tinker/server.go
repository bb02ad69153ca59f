package tinker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Health waits until the server answers. Its engine may need minutes more, during which operations wait.
func (c *Client) Health(ctx context.Context) error {
	t := c.newTries()
	for {
		a, _, err := c.send(ctx, c.http, http.MethodGet, "healthz", nil, 10*time.Second)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && a.status < 300:
			return nil
		case err == nil && a.status < 500:
			return &Error{Operation: "healthz", Status: a.status, Kind: kindOf(a.status, false),
				Detail: fmt.Sprintf("%s is not the address of a Tinker server; to fix: give its scheme, host and port alone, "+
					"without a path", c.base)}
		case !t.again(ctx, 0):
			return c.failure("healthz", a, err)
		}
	}
}

// Supported is a model that a server trains.
type Supported struct {
	Name string `json:"model_name"`
	// Context is the longest sequence in tokens; 0 if the server does not say.
	Context int `json:"max_context_length"`
}

// Capabilities lists the models that the server trains.
func (c *Client) Capabilities(ctx context.Context) ([]Supported, error) {
	var reply struct {
		Models []Supported `json:"supported_models"`
	}
	err := c.request(ctx, c.http, http.MethodGet, "get_server_capabilities", nil, &reply, true)
	return reply.Models, err
}

// supports finds the base model among those that the server trains.
func (c *Client) supports(ctx context.Context, base string) (Supported, error) {
	models, err := c.Capabilities(ctx)
	if err != nil {
		return Supported{}, err
	}
	var names []string
	for _, m := range models {
		if m.Name == base {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return Supported{}, invalidf("get_server_capabilities", "the server does not train %q; to fix: name the model as it "+
		"does: %s", base, strings.Join(names, ", "))
}

// Remove deletes a checkpoint. Older servers do not support that and keep it.
func (c *Client) Remove(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	err = c.request(ctx, c.http, http.MethodDelete, "training_runs/"+u.Host+"/checkpoints"+u.Path, nil, nil, true)
	if errors.Is(err, ErrUnknown) {
		c.log.Debug("the trainer keeps a checkpoint", "address", address, "error", err)
		return nil
	}
	return err
}
