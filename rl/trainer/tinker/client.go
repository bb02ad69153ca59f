package tinker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
)

// KeyVariable is the environment variable with the API key. There is no setting for it, so that it is never written to
// a file.
const KeyVariable = "TINKER_API_KEY"

// Time limits.
const (
	// pollTimeout limits one long poll. Servers hold polls for up to 300 s, but a dead connection should be noticed
	// earlier.
	pollTimeout = 45 * time.Second
	// healthTimeout limits a health check.
	healthTimeout = 10 * time.Second
	// callTimeout limits every other request, together with the patience; leastCall is the lowest such limit. The
	// longest request is the upload of a chunk.
	callTimeout = 5 * time.Minute
	leastCall   = 10 * time.Second
	// maxPause is how long to wait for a paused account.
	maxPause = time.Hour
	// maxBackoff is the longest time between two tries.
	maxBackoff = 30 * time.Second
)

// Limits for the size of a response.
const (
	maxAnswer  = 1 << 30
	maxRefusal = 1 << 20
)

// ClientOptions configure a Client. URL has no default.
type ClientOptions struct {
	URL string
	// Key is sent as X-API-Key, unless it is empty.
	Key string
	// Patience is how long to wait for a server that does not answer [5m].
	Patience time.Duration
	// LoRASync is the directory to which the server writes the adapters that it samples with, each in a subdirectory
	// named after its model. SkyRL's GPU backends call it trainer.policy.model.lora.lora_sync_path. If it is empty,
	// adapters are downloaded.
	LoRASync string
	// OperationTimeout is how long to wait for one operation [2h].
	OperationTimeout time.Duration
	Log              *slog.Logger
}

// Client is a client of one server. It is safe for concurrent use.
type Client struct {
	base     *url.URL
	key      string
	loraSync string
	patience time.Duration
	longest  time.Duration
	log      *slog.Logger
	// once sends requests that must not be executed twice. Each has a connection of its own, because a request on a
	// connection that the server is closing may or may not have been executed.
	http, once *http.Client
	// backoff is the first pause between two tries.
	backoff time.Duration

	// accepted is set once the server has accepted the key. Some servers check no key in requests about their health and
	// their models.
	accepted atomic.Bool
	outage   outage

	mu sync.Mutex
	// recent and before hold the request IDs of the latest operations: when recent is full, it becomes before.
	recent, before map[string]bool
}

// NewClient checks the options. It sends no request.
func NewClient(o ClientOptions) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(o.URL, "/"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" {
		return nil, fmt.Errorf("invalid URL %q of a trainer (for example http://127.0.0.1:8000)", o.URL)
	}
	if u.User != nil {
		return nil, fmt.Errorf("the URL of the trainer has a password in it; to fix: put the key into %s", KeyVariable)
	}
	if strings.ContainsFunc(o.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("%s holds a line break, a space or another character that a key cannot have; "+
			"to fix: set it to the key alone", KeyVariable)
	}
	c := &Client{
		base: u, key: o.Key, loraSync: o.LoRASync, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		patience: cmp.Or(o.Patience, 5*time.Minute),
		longest:  cmp.Or(o.OperationTimeout, 2*time.Hour), backoff: 200 * time.Millisecond,
		recent: map[string]bool{},
	}
	c.outage.log = c.log
	c.http, c.once = c.newHTTP(false), c.newHTTP(true)
	return c, nil
}

func (c *Client) newHTTP(once bool) *http.Client {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 64, // one long poll for each operation under way
		IdleConnTimeout:     4 * time.Second,
		DisableKeepAlives:   once,
	}
	return &http.Client{Transport: t, CheckRedirect: c.redirected}
}

// redirected permits only downloads of archives to be redirected to another host, and without the key: a body must
// not be sent to a host that the user has not named.
func (c *Client) redirected(r *http.Request, via []*http.Request) error {
	switch {
	case r.URL.Scheme == "file" && via[0].URL.Scheme == "http" && path.Base(via[0].URL.Path) == "archive":
		return http.ErrUseLastResponse // the files are on the server's machine, which is no hosted one
	case len(via) > 5:
		return errors.New("more than five redirects")
	case via[0].Method != http.MethodGet, r.URL.Host != c.base.Host && path.Base(via[0].URL.Path) != "archive":
		return fmt.Errorf("the trainer redirects to %s; to fix: give the address that it redirects to", r.URL.Redacted())
	case via[0].URL.Scheme == "https" && r.URL.Scheme != "https":
		return fmt.Errorf("the trainer redirects from https to %s", r.URL.Redacted())
	case r.URL.Host != c.base.Host:
		r.Header.Del("X-API-Key")
	}
	return nil
}

// Close ends idle connections.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.once.CloseIdleConnections()
}

// remembered is the number of request IDs that recent can hold. It is limited because a long run samples millions of
// replies.
const remembered = 1 << 16

// issued reports whether a recent operation has the request ID.
func (c *Client) issued(request string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent[request] || c.before[request]
}

// fresh records the request ID that the server gave an operation, and reports whether no recent operation had it.
func (c *Client) fresh(request string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recent[request] || c.before[request] {
		return false
	}
	if len(c.recent) == remembered {
		c.before, c.recent = c.recent, map[string]bool{}
	}
	c.recent[request] = true
	return true
}

// answer is the response to one request.
type answer struct {
	status   int
	body     []byte
	protobuf bool          // the body is protobuf rather than JSON
	after    time.Duration // Retry-After
}

// send sends one request and reads the response. sent is false if the server cannot have received the request.
func (c *Client) send(ctx context.Context, h *http.Client, method, path string, body content, limit time.Duration,
) (a answer, sent bool, err error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := c.newRequest(limited, method, path, body)
	if err != nil {
		return a, false, err
	}
	resp, err := h.Do(r)
	if ctx.Err() == nil {
		status := 0
		if err == nil {
			status = resp.StatusCode
		}
		c.outage.observe(status, unwrapURL(err))
	}
	if err != nil {
		dial, ok := errors.AsType[*net.OpError](err)
		return a, !ok || dial.Op != "dial", unwrapURL(err)
	}
	defer resp.Body.Close()
	most := int64(maxAnswer)
	if resp.StatusCode >= 300 {
		most = maxRefusal
	}
	a.status, a.protobuf = resp.StatusCode, strings.HasPrefix(resp.Header.Get("Content-Type"), kindProtobuf)
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.after = min(time.Duration(seconds)*time.Second, maxBackoff)
	}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(a.body)) > most && resp.StatusCode < 300 {
		err = fmt.Errorf("the response is larger than %d MiB", most>>20)
	}
	if resp.StatusCode >= 300 {
		err = nil // the status is enough
	}
	return a, true, err
}

func (c *Client) newRequest(ctx context.Context, method, path string, body content) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath("api/v1", path).String(), bytes.NewReader(body.data))
	if err != nil {
		return nil, err
	}
	r.Header = body.header()
	if c.key != "" {
		r.Header.Set("X-API-Key", c.key)
	}
	return r, nil
}

// unwrapURL removes the method and the address from an error of net/http. The caller names the operation instead.
func unwrapURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// call posts a request and decodes the response. A repeatable request is sent again after any temporary failure. Any
// other request is sent again only if it was certainly not executed; otherwise, the error marks the trainer as lost.
func (c *Client) call(ctx context.Context, path string, in, out any, repeatable bool) error {
	body, err := disk.MarshalJSON(in)
	if err != nil {
		return &Error{Operation: path, Kind: ErrInvalid, Detail: err.Error()}
	}
	return c.request(ctx, http.MethodPost, path, content{data: body}, out, repeatable)
}

// request is call for any method and an encoded body.
func (c *Client) request(ctx context.Context, method, path string, body content, out any, repeatable bool) error {
	h, limit := c.http, c.callLimit()
	if !repeatable { // there is no second try, so giving up early would lose the result
		h, limit = c.once, max(limit, c.patience)
	}
	t := c.newTries()
	for {
		a, sent, err := c.send(ctx, h, method, path, body, limit)
		switch {
		case ctx.Err() != nil:
			if sent && !repeatable {
				return lost(&Error{Operation: path, Kind: errUnavailable, Cause: ctx.Err()})
			}
			return fmt.Errorf("%s: %w", path, ctx.Err())
		case err == nil && a.status < 300:
			if out == nil {
				return nil
			}
			if err = decode(a, out); err == nil {
				return nil
			}
			if !repeatable {
				return lost(c.failure(path, a, err))
			}
		case err == nil && (a.status == http.StatusTooManyRequests || c.denies(a)):
			// The request was not executed.
		case err == nil && a.status < 500:
			return c.refused(path, a)
		case sent && !repeatable:
			return lost(c.failure(path, a, err))
		}
		if !t.again(ctx, a.after) {
			return c.failure(path, a, err)
		}
		c.log.Debug("trainer: request sent again", "operation", path, "status", a.status, "error", err)
	}
}

// callLimit returns how long one try may take, so that there are several within the patience.
func (c *Client) callLimit() time.Duration { return min(callTimeout, max(leastCall, c.patience/3)) }

// errGarbled reports a response that is not the server's, such as a proxy's page with a status of success.
var errGarbled = errors.New("its response does not follow the protocol")

func decode(a answer, out any) error {
	var err error
	if result, ok := out.(protobufResult); ok && a.protobuf {
		err = result.unmarshalProtobuf(a.body)
	} else {
		err = json.Unmarshal(a.body, out)
	}
	if r, ok := out.(*accepted); ok && err == nil && r.Request == "" {
		err = errors.New("no request_id")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errGarbled, err)
	}
	return nil
}

// refused returns the error for a response with an error status.
func (c *Client) refused(path string, a answer) error {
	detail := detailOf(a.body)
	return &Error{Operation: path, Status: a.status, Kind: kindOf(a.status), Detail: detail, Lost: gone(detail)}
}

// failure returns the error of a request that is not tried again.
func (c *Client) failure(path string, a answer, err error) error {
	switch {
	case errors.Is(err, errGarbled):
		return &Error{Operation: path, Status: a.status, Kind: errServer, Detail: err.Error()}
	case err != nil:
		return &Error{Operation: path, Kind: errUnavailable, Detail: err.Error()}
	}
	return &Error{Operation: path, Status: a.status, Kind: kindOf(a.status), Detail: detailOf(a.body)}
}

// denies reports whether the server refuses a key that it has accepted before, as a gateway may do for a while.
func (c *Client) denies(a answer) bool {
	return c.accepted.Load() && kindOf(a.status) == ErrAccess
}

// tries controls the repetitions of a request.
type tries struct {
	begun           time.Time
	pause           time.Duration
	first, patience time.Duration
}

func (c *Client) newTries() *tries {
	return &tries{begun: time.Now(), pause: c.backoff, first: c.backoff, patience: c.patience}
}

// again waits before the next try. It reports false if the time for tries is over.
func (t *tries) again(ctx context.Context, atLeast time.Duration) bool {
	if time.Since(t.begun) > t.patience {
		return false
	}
	pause := max(t.pause, atLeast)
	t.pause = min(2*t.pause, maxBackoff)
	_ = env.Sleep(ctx, pause) // the next try reports it
	return true
}

// reset starts the time for tries again after a response.
func (t *tries) reset() { t.begun, t.pause = time.Now(), t.first }
