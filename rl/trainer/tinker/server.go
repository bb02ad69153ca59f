package tinker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"deepswe/rl/weights"
)

// Health waits until the server answers. Its engine may need minutes more, during which operations wait.
func (c *Client) Health(ctx context.Context) error {
	t := c.newTries()
	for {
		a, _, err := c.send(ctx, c.http, http.MethodGet, "healthz", content{}, healthTimeout)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && a.status < 300:
			return nil
		case err == nil && a.status < 500:
			return &Error{Operation: "healthz", Status: a.status, Kind: kindOf(a.status),
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
	// Roles are what a server of TuFT does with the model; others do not say.
	Roles []string `json:"capabilities"`
}

// Capabilities lists the models that the server trains.
func (c *Client) Capabilities(ctx context.Context) ([]Supported, error) {
	var reply struct {
		Models []Supported `json:"supported_models"`
	}
	err := c.request(ctx, http.MethodGet, "get_server_capabilities", content{}, &reply, true)
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
	if len(names) == 0 {
		return Supported{}, invalidf("get_server_capabilities", "the server trains no model; to fix: see what answers "+
			"there: it may be another server")
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
	err = c.request(ctx, http.MethodDelete, "training_runs/"+u.Host+"/checkpoints"+u.Path, content{}, nil, true)
	if errors.Is(err, ErrUnknown) {
		c.log.Debug("the trainer keeps a checkpoint", "address", address, "error", err)
		return nil
	}
	return err
}

// unpacking says what to do with the archive of what was saved for sampling.
type unpacking struct {
	// unpack reads an archive.
	unpack func(io.Reader) error
	// copied is called instead, with a directory on this machine, if the server names one.
	copied func(dir string) error
	// limit is how long all of it may take.
	limit time.Duration
}

// adapterTo unpacks an adapter into a new directory. One of rank 64 on all layers of a 32B model has 2 GB.
func adapterTo(dir string) unpacking {
	return unpacking{
		unpack: func(in io.Reader) error { return weights.Unpack(in, dir) },
		copied: func(from string) error {
			if err := weights.Copy(from, dir); err != nil {
				return fmt.Errorf("%w; the server names files of its own machine: to fix: run deepswe there, or share its "+
					"checkpoints under the same path", err)
			}
			return nil
		},
		limit: time.Hour,
	}
}

// modelTo unpacks all weights into a new directory. A 32B model has 65 GB.
func modelTo(dir string, card weights.Card) unpacking {
	return unpacking{
		unpack: func(in io.Reader) error { return weights.UnpackModel(in, dir, card) },
		copied: func(string) error { return weights.ErrAdapter },
		limit:  12 * time.Hour,
	}
}

// download unpacks what was saved for sampling under an address. If it fails, there is no directory.
func (c *Client) download(ctx context.Context, address string, to unpacking) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "tinker" || u.Host == "" {
		return fmt.Errorf("download the weights: %q is not the address of a checkpoint", address)
	}
	ctx, cancel := context.WithTimeout(ctx, to.limit)
	defer cancel()
	silent := time.AfterFunc(c.patience, cancel)
	defer silent.Stop()
	where := "training_runs/" + u.Host + "/checkpoints/" + path.Base(u.Path) + "/archive"
	r, err := c.newRequest(ctx, http.MethodGet, where, content{})
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return &Error{Operation: "archive", Kind: errUnavailable, Cause: unwrapURL(err)}
	}
	defer resp.Body.Close()
	if at, err := resp.Location(); err == nil && at.Scheme == "file" {
		return to.copied(at.Path)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // the status says enough
		return c.refused("archive", answer{status: resp.StatusCode, body: text})
	}
	err = to.unpack(heard{resp.Body, func() { silent.Reset(min(pollTimeout, c.patience)) }})
	switch {
	case errors.Is(err, weights.ErrMerged):
		return fmt.Errorf("%w; to fix: set trainer.lora_sync_path to the directory in which the server writes adapters "+
			"(SkyRL's GPU backends: trainer.policy.model.lora.lora_sync_path)", err)
	case errors.Is(err, weights.ErrArchive):
		return fmt.Errorf("%w; to fix: look at what %s has saved, or at a proxy before it", err, c.base.Redacted())
	}
	return err
}

// heard is a reader that calls say whenever it has read something.
type heard struct {
	io.Reader
	say func()
}

func (h heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.say()
	}
	return n, err
}

// take downloads what was saved for sampling under an address, and deletes it on the server.
func (c *Client) take(ctx context.Context, address string, to unpacking) error {
	err := c.downloadAgain(ctx, address, to)
	if rerr := c.Remove(ctx, address); rerr != nil {
		c.log.Debug("the trainer keeps what was saved for sampling", "address", address, "error", rerr)
	}
	return err
}

// downloads is how often to try to download an archive completely.
const downloads = 3

// downloadAgain is download, and tries again where that can help.
func (c *Client) downloadAgain(ctx context.Context, address string, to unpacking) error {
	t := c.newTries()
	for n := 1; ; n++ {
		err := c.download(ctx, address, to)
		if n < downloads {
			t.reset() // one that stalls has used up the patience
		}
		again := errors.Is(err, errUnavailable) || errors.Is(err, ErrAccess) || errors.Is(err, errRateLimited) ||
			errors.Is(err, errServer) || errors.Is(err, weights.ErrArchive) && n < downloads
		if !again || ctx.Err() != nil || !t.again(ctx, 0) {
			return err
		}
		c.log.Warn("the weights are downloaded again", "error", err)
	}
}
