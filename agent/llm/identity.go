package llm

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"deepswe/agent"
	"deepswe/env"
)

// Identity is what distinguishes a server from another one that replaces it.
type Identity struct {
	// Model is empty if the server does not list it.
	Model string `json:"model"`
	// Context is the length of the model's context in tokens; 0 if the server does not report it.
	Context int `json:"context,omitempty"`
	// Tokens is a hash of a conversation's ids, which changes with the tokenizer and with the chat template; empty if
	// the server has no /tokenize.
	Tokens string `json:"tokens,omitempty"`
}

// Change says what has changed on a server; empty if nothing has.
func (i Identity) Change(now Identity) string {
	switch {
	case now.Model == "" && i.Model != "":
		return "it no longer serves the model " + i.Model
	case i.Model != now.Model:
		return fmt.Sprintf("it now serves the model %s, and served %s before", now.Model, i.Model)
	case i.Context != now.Context:
		return fmt.Sprintf("the model's context now has %d tokens, and had %d before", now.Context, i.Context)
	case i.Tokens != now.Tokens:
		return "the same text now has other tokens: another tokenizer or another chat template"
	}
	return ""
}

// Identify asks the server for its identity.
func (c *Client) Identify(ctx context.Context) (Identity, error) {
	return c.identify(ctx, c.patience(agent.Request{}))
}

// Pin makes requests fail with an error that wraps [agent.ErrModelChanged] once a server that was gone has come back
// with another identity. Only requests that wait for the server check that; see [Options.Patience].
func (c *Client) Pin(i Identity) { c.pinned.Store(&i) }

func (c *Client) identify(ctx context.Context, p patience) (Identity, error) {
	served, err := c.discover(ctx, p)
	if err != nil {
		return Identity{}, err
	}
	i := Identity{Model: served.ID, Context: served.Context}
	if served.Unlisted {
		i.Model = ""
	}
	// A little of everything that tokenizers treat in their own ways.
	probe := []agent.Message{
		{Role: agent.RoleUser, Content: "It's 2026:\n\n\tif x_1 != 'naïve ﬁ' { return 12345 }  // 你好, мир 🙂\r\n"},
		{Role: agent.RoleAssistant, Reasoning: "Why?", Content: "Done."}, {Role: agent.RoleUser, Content: "<b>"},
	}
	ids, err := c.tokenize(ctx, p, newTokenizeBody(served.ID, probe, nil, true))
	if errors.Is(err, ErrNoExtension) {
		return i, nil
	}
	if err != nil {
		return i, err
	}
	h := sha256.New()
	if err := binary.Write(h, binary.LittleEndian, ids); err != nil {
		return i, err
	}
	i.Tokens = hex.EncodeToString(h.Sum(nil))
	return i, nil
}

var (
	// numbered matches a name that ends with the number of a version: policy@12.
	numbered = env.Pattern(`@(\d{1,18})$`)
	// lastNumber matches what vLLM's own name of a version ends with: step-12.
	lastNumber = env.Pattern(`(?:^|[^0-9])(\d{1,18})$`)
)

// weightVersion returns the version of the weights that sample next: the number after the @ in the model's name, or the
// one at the end of the server's name for the weights (vLLM's /weight_info). It is nil if there is neither.
func (c *Client) weightVersion(ctx context.Context, p patience, model string) (*int64, error) {
	if v := numberIn(numbered(), model); v != nil || c.versionless.Load() {
		return v, nil
	}
	var answer struct {
		Version string `json:"weight_version"`
	}
	p.retries = 0
	err := c.query(ctx, p, listPatience, c.root()+"/weight_info", nil, &answer)
	if failed, ok := errors.AsType[*Error](err); ok {
		c.versionless.Store(!failed.gone) // the server has no such endpoint, or a web page instead
		return nil, nil
	}
	return numberIn(lastNumber(), answer.Version), err
}

func numberIn(pattern *regexp.Regexp, name string) *int64 {
	m := pattern.FindStringSubmatch(name)
	if m == nil {
		return nil
	}
	n, _ := strconv.ParseInt(m[1], 10, 64) // no more than 18 digits
	return &n
}
