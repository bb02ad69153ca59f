package llm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"deepswe/agent"
)

// Options configure a client. Only BaseURL is required.
type Options struct {
	// BaseURL is the endpoint's root, "http://localhost:8000/v1". A missing scheme, a missing /v1 on a bare host and a
	// trailing /chat/completions are corrected.
	BaseURL string
	// APIKey is sent as a bearer token; empty sends none. It never appears in an error or in the log.
	APIKey string
	// Hints replaces the names of settings in hints by those that the endpoint was chosen with. If nil, hints name
	// OPENAI_API_KEY, --base-url and --model.
	Hints *strings.Replacer
	// Model is the served name. When it is empty, the only model that the endpoint serves is used.
	Model string
	// Transport carries the requests: one with a 10 s dial timeout and the environment's proxy when nil.
	Transport http.RoundTripper
	// MaxRetries is how often a failed request is repeated: 8 times when 0, never when negative. Requests that ran into
	// a timeout are repeated twice at most.
	MaxRetries int
	// Continue says how the prompts of requests for tokens are built; empty means Template.
	Continue Continuation
	// Codec writes prompts for Extend: the server's own template and tokenizer when nil.
	Codec Codec
	// Like is a client of the same server and template: what it has learned of them is not learned again. It may be nil.
	Like *Client
	// Patience is how long a request waits for a server that is gone, beyond MaxRetries: not at all when 0. Waiting
	// requests share one probe, and what came back is compared with what was there before, see [Client.Pin].
	Patience time.Duration
	// Log gets a warning for every retry: nowhere when nil.
	Log *slog.Logger
}

// How long to wait for a silent endpoint. The total time of a streamed answer is not limited.
const (
	// firstByte bounds the wait for the first byte of a streamed answer, idle every silence after it.
	firstByte = 5 * time.Minute
	idle      = 5 * time.Minute
	// wholeAnswer bounds the wait for an answer that is not streamed, for which a server sends nothing until the last
	// token is there. It ends earlier if the server works on nothing, see [Client.watchRequest].
	wholeAnswer = 30 * time.Minute
)

// Client is an endpoint. It implements agent.Model.
type Client struct {
	o    Options
	base string // normalised, as requests use it
	name string // the same for people: no user, no password
	http *http.Client
	// sleep waits between attempts. Tests replace it.
	sleep func(ctx context.Context, d time.Duration) error

	dialect atomic.Pointer[dialect]
	model   atomic.Pointer[string] // chosen by Discover when Options.Model is empty
	mostTop atomic.Pointer[int]    // most alternatives that Spell may ask for; nil as long as nothing was refused
	context atomic.Int64           // the model's, as /tokenize reports it; 0 is not known
	counted atomic.Bool            // the server was seen to read whole prompts
	codec   atomic.Pointer[serverCodec]
	// learning is held by whoever learns the codec.
	learning chan struct{}
	// templated is set once Auto has turned out to be Template.
	templated atomic.Bool
	// versionless is set once the server turned out not to report the version of its weights.
	versionless atomic.Bool
	progress    progress
	pinned      atomic.Pointer[Identity]
	changed     atomic.Pointer[Error] // how the server that came back differs from pinned
	outage      outage
}

var _ agent.Model = (*Client)(nil)

// New returns a client for the endpoint. It sends nothing yet.
func New(o Options) (*Client, error) {
	base, err := normalize(o.BaseURL)
	if err != nil {
		return nil, err
	}
	o.APIKey = strings.TrimSpace(o.APIKey)
	if o.Hints == nil {
		o.Hints = strings.NewReplacer()
	}
	if strings.ContainsFunc(o.APIKey, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, errors.New(o.Hints.Replace("OPENAI_API_KEY contains control or non-ASCII characters"))
	}
	o.MaxRetries = max(cmp.Or(o.MaxRetries, 8), 0)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Transport == nil {
		o.Transport = newTransport()
	}
	c := &Client{o: o, base: base.String(), name: base.Redacted(), sleep: sleep}
	c.outage.probing, c.learning = make(chan struct{}, 1), make(chan struct{}, 1)
	c.model.Store(&o.Model)
	if o.Like != nil {
		if known := o.Like.codec.Load(); known != nil {
			c.codec.Store(&serverCodec{c: c, model: o.Model, learned: known.learned})
		}
	}
	// A redirected POST would arrive as a GET without a body: better to say where the endpoint went.
	c.http = &http.Client{Transport: o.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	c.dialect.Store(&dialect{})
	return c, nil
}

// DropThoughts leaves the thoughts of earlier replies out of what is sent.
func (c *Client) DropThoughts() {
	c.dialect.Store(&dialect{refused: map[string]bool{reasoning: true, reasoningContent: true}})
}

// Complete asks for one message. Its errors wrap the context's error when ctx ended, and an [*Error] otherwise.
//
// The request is streamed when OnText is set and Tokens is not, unless the endpoint refuses that: servers assemble tool
// calls and token ids more faithfully when they send them whole. OnText is called from the caller's own goroutine with
// reasoning and content alike; when a stream breaks and the request is repeated, it says so and starts again.
func (c *Client) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	model, err := c.modelName(ctx)
	if err != nil {
		return agent.Reply{}, fmt.Errorf("choose a model: %w", err)
	}
	var reply agent.Reply
	if err := c.sameServer(); err != nil {
		return agent.Reply{}, err
	}
	extends := r.Tokens && (c.o.Continue == Extend || c.o.Continue == Auto && !c.templated.Load())
	if extends {
		reply, err = c.extend(ctx, r, model)
	}
	if extends && c.o.Continue == Auto && errors.Is(err, ErrNoExtension) {
		extends = false
		if !c.templated.Swap(true) {
			c.o.Log.Warn("the chat template will write every prompt: turns may not extend each other", "error", err)
		}
	}
	if !extends {
		reply, err = c.chat(ctx, r, model)
	}
	if failed, ok := errors.AsType[*Error](err); ok && failed.Status == http.StatusNotFound && failed.Hint == "" {
		failed.Hint = c.notServed(ctx, model)
	}
	if err != nil {
		return agent.Reply{}, err
	}
	return reply, nil
}

// chat asks for a reply to messages.
func (c *Client) chat(ctx context.Context, r agent.Request, model string) (reply agent.Reply, err error) {
	var version *int64
	if r.Tokens {
		if version, err = c.weightVersion(ctx, c.patience(r), model); err != nil {
			return agent.Reply{}, err
		}
	}
	err = c.retry(ctx, c.patience(r), func(ctx context.Context, d *dialect) *Error {
		var failed *Error
		reply, failed = c.attempt(ctx, newBody(r, model, d), r)
		return failed
	})
	if err == nil && reply.Tokens != nil {
		reply.Tokens.PolicyVersion = version
	}
	if err == nil {
		if cut := c.cut(ctx, r, reply.Usage); cut != nil {
			return reply, cut
		}
	}
	return reply, err
}

// attempt sends the request once. A reply that the server could not parse is a reply, too: the mistake is the
// model's.
func (c *Client) attempt(ctx context.Context, b *body, r agent.Request) (agent.Reply, *Error) {
	got, reply, failed := c.once(ctx, b, r)
	if failed == nil {
		return reply, nil
	}
	mistaken, ok := misreadReply(failed, b.Model, got.text())
	if !ok {
		return agent.Reply{}, failed
	}
	c.o.Log.Warn("the server could not parse the model's reply", "error", failed.Message)
	mistaken.Elapsed = reply.Elapsed
	return mistaken, nil
}

// once sends a request once and reads the answer. If that fails, got holds what has arrived.
func (c *Client) once(
	ctx context.Context, b *body, r agent.Request,
) (got completion, reply agent.Reply, failed *Error) {
	start := time.Now()
	limit := wholeAnswer
	if b.Stream {
		limit = firstByte
	}
	ctx, w, stop := c.watchRequest(ctx, limit)
	defer stop()
	x := &exchange{http: c.http, body: b, watch: w, streams: b.Stream, tokens: b.Logprobs}
	err := c.send(ctx, x)
	switch {
	case !x.ok() || x.raw == nil && x.events == nil:
		// err says why.
	case r.OnText != nil && !r.Tokens:
		got, err = receive(ctx, x, r.OnText)
	default:
		got, err = decode(x.raw)
	}
	if err == nil {
		err = got.usable()
	}
	if err == nil {
		reply, err = got.reply(r, c.o.Log)
	}
	if err != nil {
		failed = c.failure(ctx, x, err)
		failed.exact = r.Tokens
	}
	reply.Elapsed = time.Since(start)
	return got, reply, failed
}

// send posts the exchange's body. The library's request only supplies the address, and its answer is empty: see
// exchange.
func (c *Client) send(ctx context.Context, x *exchange) error {
	address := openai.ChatCompletionRequest{Model: "model"} // some real names would be refused
	if !x.streams {
		_, err := c.api(x).CreateChatCompletion(ctx, address)
		return err
	}
	_, err := c.api(x).CreateChatCompletionStream(ctx, address)
	return err
}

// api returns a go-openai client for one exchange. It is cheap: connections belong to c.http.
func (c *Client) api(x *exchange) *openai.Client {
	cfg := openai.DefaultConfig(c.o.APIKey)
	cfg.BaseURL = c.base
	cfg.HTTPClient = x
	return openai.NewClientWithConfig(cfg)
}

// query asks an address that go-openai does not know, and decodes the answer. It repeats the request as retry does.
func (c *Client) query(ctx context.Context, p patience, limit time.Duration, address string, body, into any) error {
	return c.retry(ctx, p, func(ctx context.Context, _ *dialect) *Error {
		return c.askOnce(ctx, limit, address, body, func(raw []byte) error { return decodeInto(raw, into) })
	})
}

// askOnce posts a body to such an address, or sends a GET request if body is nil, and reads the answer. It fails if
// no answer comes within the limit.
func (c *Client) askOnce(
	ctx context.Context, limit time.Duration, address string, body any, read func([]byte) error,
) *Error {
	ctx, w, stop := c.watchRequest(ctx, limit)
	defer stop()
	x := &exchange{http: c.http, body: body, watch: w, tokens: true}
	err := c.do(ctx, x, address)
	if err == nil {
		err = read(x.raw)
	}
	if err != nil {
		return c.failure(ctx, x, err)
	}
	return nil
}

// do sends the exchange's body to an address that go-openai does not know, and fails unless the answer is a success.
func (c *Client) do(ctx context.Context, x *exchange, address string) error {
	method := http.MethodPost
	if x.body == nil {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.o.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.o.APIKey)
	}
	resp, err := x.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // it is empty, see exchange
	if !x.ok() {
		return errRefused
	}
	return nil
}

// errRefused means a response with an error status, which is in the exchange.
var errRefused = errors.New("refused")

func normalize(raw string) (*url.URL, error) {
	raw = strings.TrimSpace(raw)
	if raw == "" {
		return nil, errors.New("no model endpoint: set --base-url or DEEPSWE_BASE_URL, for example to " +
			"http://localhost:8000/v1")
	}
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		// A parse error repeats the whole URL, and with it a password.
		return nil, errors.New("the model endpoint is not a valid URL: set --base-url, for example to " +
			"http://localhost:8000/v1")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("model endpoint %s: want http or https, a host, and neither query nor fragment", u.Redacted())
	}
	path := strings.TrimRight(u.Path, "/")
	path = strings.TrimRight(strings.TrimSuffix(path, "/chat/completions"), "/")
	u.Path, u.RawPath = cmp.Or(path, "/v1"), ""
	return u, nil
}

func newTransport() http.RoundTripper {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   256, // Go keeps 2, and hundreds of rollouts share this endpoint
	}
}
