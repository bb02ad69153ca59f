package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"deepswe/agent"
)

// A question about the endpoint is answered at once or not at all.
const (
	listPatience = 30 * time.Second
	listRetries  = 2
)

// ServedModel is one entry of the endpoint's list of models.
type ServedModel struct {
	ID string
	// Context is the maximum number of tokens of prompt and completion together; 0 if the endpoint does not report it.
	Context int
	// Owner identifies the server; see [ServedModel.Server].
	Owner string
	// Root is the path or the name that a server of the vLLM kind was started with.
	Root string
	// Loaded is set if Context is that of the model as it is loaded; Slots is how many requests it is divided among.
	Loaded bool
	Slots  int
	// Trained is the context that the model was made for; 0 if it is not known.
	Trained int
	// Tools says whether the model calls tools; nil if it is not known.
	Tools *bool
	// Aliases are other names of the same model.
	Aliases []string
	// Unlisted is set if the endpoint lists other models only. It may accept the name all the same.
	Unlisted bool
}

// ErrNoModelChosen says that an endpoint serves several models, and none was asked for.
var ErrNoModelChosen = errors.New("no model is chosen")

// Discover returns the model that requests go to, with the length of its context. When Options.Model is empty and the
// endpoint serves exactly one model, that one is used from now on; when it serves several, the error names them. A
// model that the endpoint does not list is not refused here: some endpoints answer to any name.
func (c *Client) Discover(ctx context.Context) (ServedModel, error) {
	return c.discover(ctx, patience{retries: min(listRetries, c.o.MaxRetries)})
}

func (c *Client) discover(ctx context.Context, p patience) (ServedModel, error) {
	model := *c.model.Load()
	served, err := c.list(ctx, p)
	if err != nil {
		failed, ok := errors.AsType[*Error](err)
		if !ok || !failed.lacksModelList() {
			return ServedModel{}, err
		}
		if model == "" {
			failed.Hint = "it lists no models: check --base-url, or set --model or DEEPSWE_MODEL"
			return ServedModel{}, err
		}
		return ServedModel{ID: model}, nil
	}
	if model != "" {
		for _, m := range served {
			if m.ID == model || slices.Contains(m.Aliases, model) || m.ID == model+":latest" {
				m.ID = model
				c.Measure(ctx, &m)
				return m, nil
			}
		}
		return ServedModel{ID: model, Unlisted: len(served) > 0}, nil
	}
	if len(served) != 1 {
		return ServedModel{}, c.undecided(served)
	}
	c.model.Store(&served[0].ID)
	c.Measure(ctx, &served[0])
	return served[0], nil
}

// lacksModelList reports whether a list of models failed because the endpoint has none.
func (e *Error) lacksModelList() bool {
	return e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed ||
		e.Status == http.StatusNotImplemented
}

func (c *Client) undecided(served []ServedModel) error {
	e := &Error{Endpoint: c.name, hints: c.o.Hints, Attempts: 1, sentinel: agent.ErrModelUnavailable}
	if len(served) == 0 {
		e.Message, e.Hint = "it serves no model", "load one, or set --model or DEEPSWE_MODEL"
		return e
	}
	e.Message, e.Hint = "it serves several models: "+list(served), "set --model or DEEPSWE_MODEL to one of them"
	e.cause = ErrNoModelChosen
	return e
}

// ErrNotServed says that an endpoint does not answer to a model's name.
var ErrNotServed = errors.New("the endpoint does not serve the model")

// Probe requests one token, and returns [ErrNotServed] if the endpoint does not know the model. Any other failure is
// ignored, because the first real request will report it.
func (c *Client) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	model, err := c.modelName(ctx)
	if err != nil {
		return err
	}
	one := agent.Request{Messages: []agent.Message{{Role: agent.RoleUser, Content: "Say yes."}}, MaxTokens: 1}
	_, failed := c.attempt(ctx, newBody(one, model, c.dialect.Load()), one)
	if failed == nil || failed.Status != http.StatusNotFound {
		return nil
	}
	return fmt.Errorf("%w %s; %s", ErrNotServed, model, c.notServed(ctx, model))
}

// modelName is the model that requests go to.
func (c *Client) modelName(ctx context.Context) (string, error) {
	if model := *c.model.Load(); model != "" {
		return model, nil
	}
	m, err := c.Discover(ctx)
	return m.ID, err
}

// Models returns the models that the endpoint lists.
func (c *Client) Models(ctx context.Context) ([]ServedModel, error) {
	return c.list(ctx, patience{retries: min(listRetries, c.o.MaxRetries)})
}

func (c *Client) list(ctx context.Context, p patience) ([]ServedModel, error) {
	var served []ServedModel
	err := c.retry(ctx, p, func(ctx context.Context, _ *dialect) *Error {
		ctx, w := watch(ctx, listPatience)
		defer w.stop()
		x := &exchange{http: c.http, watch: w}
		_, err := c.api(x).ListModels(ctx) // its answer is empty, see exchange
		if x.ok() {
			served, err = ReadModels(x.raw)
		}
		if err != nil {
			return c.failure(ctx, x, err)
		}
		return nil
	})
	return served, err
}

// ReadModels reads a list of models: {"data": […]}, or the bare array of some hosted services, with every name that the
// length of the context goes by.
func ReadModels(raw []byte) ([]ServedModel, error) {
	type entry struct {
		ID      string   `json:"id"`
		Owner   string   `json:"owned_by"`
		Parent  string   `json:"parent"`
		Root    string   `json:"root"`
		Aliases []string `json:"aliases"`
		VLLM    int      `json:"max_model_len"`
		Router  int      `json:"context_length"`
		Groq    int      `json:"context_window"`
		Mistral int      `json:"max_context_length"`
		LiteLLM int      `json:"max_input_tokens"`
		Meta    struct {
			Slot  int `json:"n_ctx"`
			Train int `json:"n_ctx_train"`
		} `json:"meta"`
	}
	var entries []entry
	if json.Unmarshal(raw, &entries) != nil {
		var list struct {
			Data []entry `json:"data"`
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fmt.Errorf("%w in %q", err, readable(string(raw)))
		}
		entries = list.Data
	}
	served := make([]ServedModel, 0, len(entries))
	parents := map[string]string{}
	contexts := map[string]int{}
	for _, e := range entries {
		m := ServedModel{ID: e.ID, Owner: e.Owner, Aliases: e.Aliases, Root: e.Root, Trained: e.Meta.Train}
		if e.Meta.Train > 0 { // only llama.cpp reports it
			m.Owner = "llamacpp"
		}
		// With llama.cpp, a request is limited to a slot, which may be smaller than the context that the model was
		// trained for.
		for _, n := range []int{e.VLLM, e.Router, e.Groq, e.Mistral, e.LiteLLM, e.Meta.Slot} {
			if n > 0 {
				m.Context = n
				break
			}
		}
		served = append(served, m)
		parents[m.ID], contexts[m.ID] = e.Parent, m.Context
	}
	for i, m := range served { // vLLM lists a LoRA adapter without a length: it has its base model's
		if m.Context == 0 {
			served[i].Context = contexts[parents[m.ID]]
		}
	}
	return served, nil
}

// notServed returns the hint after a 404: the models that the endpoint serves, if it lists them quickly.
func (c *Client) notServed(ctx context.Context, model string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	served, err := c.Models(ctx)
	switch {
	case err != nil:
		return "check --base-url, it usually ends in /v1"
	case len(served) == 0:
		return "the endpoint serves no model; load one"
	case slices.ContainsFunc(served, func(m ServedModel) bool { return m.ID == model }):
		return "the endpoint lists the model: check --base-url, and that the key may use it, or choose another with --model"
	}
	return "set --model to one that the endpoint serves: " + list(served)
}

// list names models, the first ten of them.
func list(served []ServedModel) string {
	var names []string
	for _, m := range served {
		names = append(names, m.ID)
	}
	if more := len(names) - 10; more > 0 {
		names = append(names[:10], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
