package llm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"deepswe/agent"
	"deepswe/env"
)

// Error describes a failed request, and what to do about it. It wraps agent.ErrContextOverflow or
// agent.ErrModelUnavailable, the latter together with agent.ErrToolsUnsupported for a server without tool calls, and
// the cause, if there is one.
type Error struct {
	// Endpoint is the base URL, without credentials.
	Endpoint string
	// Status is the answer's HTTP status; 0 when there was none.
	Status int
	// Message is the server's message, or the failure of the connection: one line, shortened, without the API key.
	Message string
	// Hint is what the user can do about it; may be empty.
	Hint string
	// Attempts is how often the request was sent.
	Attempts int

	hints    *strings.Replacer // nil leaves the hint
	sentinel error
	noTools  bool
	exact    bool // the request was for tokens, and goes as it is or not at all
	cause    error
	said     serverError
	gone     bool // no server answers, or a proxy reports that
	repeat   repetition
	after    time.Duration // what Retry-After asked for
}

func (e *Error) Error() string {
	var b strings.Builder
	if errors.Is(e.sentinel, agent.ErrContextOverflow) {
		b.WriteString(e.sentinel.Error())
		b.WriteString(": ")
	}
	fmt.Fprintf(&b, "model endpoint %s: ", e.Endpoint)
	if e.Status != 0 {
		fmt.Fprintf(&b, "status %d", e.Status)
		if text := http.StatusText(e.Status); text != "" {
			b.WriteString(" " + text)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	if hint := e.Hint; hint != "" {
		if e.hints != nil {
			hint = e.hints.Replace(hint)
		}
		b.WriteString("; " + hint)
	}
	if e.Attempts > 1 {
		fmt.Fprintf(&b, " (after %d attempts)", e.Attempts)
	}
	return b.String()
}

// brief is the failure in a few words.
func (e *Error) brief() string {
	if e.Status == 0 {
		return fmt.Sprintf("the model endpoint %s failed: %s", e.Endpoint, e.Message)
	}
	return fmt.Sprintf("the model endpoint %s answered %d: %s", e.Endpoint, e.Status, e.Message)
}

// Unwrap gives the sentinels and the cause.
func (e *Error) Unwrap() []error {
	wrapped := []error{e.sentinel}
	if e.noTools {
		wrapped = append(wrapped, agent.ErrToolsUnsupported)
	}
	if e.cause != nil {
		wrapped = append(wrapped, e.cause)
	}
	return wrapped
}

// repetition says whether a failed request is worth another attempt.
type repetition int

const (
	never repetition = iota
	twice            // it has cost a whole timeout already, or there is little hope
	often
)

// failure turns what happened to one attempt into an Error. The exchange knows more than the library's error does.
func (c *Client) failure(ctx context.Context, x *exchange, err error) *Error {
	e := &Error{Endpoint: c.name, hints: c.o.Hints, Status: x.status, sentinel: agent.ErrModelUnavailable, cause: err}
	var event *errorEvent
	switch {
	case errors.Is(context.Cause(ctx), errSilent):
		// Checked first: after the context has ended, err depends on the layer that noticed it.
		e.repeat, e.cause = twice, context.Cause(ctx)
		e.Message = e.cause.Error()
	case x.status != 0 && !x.ok():
		e.cause = nil // the library's words for the same
		c.refusal(e, x)
	case errors.As(err, &event):
		c.reported(e, event)
	case x.ok():
		e.Message, e.repeat = c.mangled(x, err)
	default:
		e.Message, e.Hint, e.repeat = unreachable(err)
		e.gone = e.repeat == often
	}
	if x.ok() {
		e.Status = 0 // "200 OK" in front of a failure only confuses
	}
	e.Message = strings.TrimSuffix(c.redact(e.Message), ".") // more follows on the line
	return e
}

// toolsRefused matches how a server says that it takes no tool calls: vLLM without --enable-auto-tool-choice, llama.cpp
// without --jinja (two generations of it), an Ollama model without a tool template, and OpenRouter.
var toolsRefused = env.Pattern(`(?i)enable-auto-tool-choice|tool-call-parser|tools param requires|` +
	`unsupported param: tools|` +
	`does not support (tools|tool use|function calling)|no endpoints found that support tool`)

// refusal explains an answer with an error status.
func (c *Client) refusal(e *Error, x *exchange) {
	e.said = parseServerError(x.raw)
	e.Message = cmp.Or(e.said.Message, "no explanation was given")
	e.after = retryAfter(x.header, time.Now())
	if isOverflow(x.status, e.said) || x.body != nil && filled().MatchString(e.said.Message) {
		e.sentinel = agent.ErrContextOverflow
		return
	}
	if toolsRefused().MatchString(e.said.Message) {
		e.noTools, e.Hint = true, "serve the model with tool calls (vLLM: --enable-auto-tool-choice "+
			"--tool-call-parser NAME), or use --format xml"
		return
	}
	switch code := x.status; {
	case strings.Contains(e.said.Code+e.said.Type, "insufficient_quota"):
		e.Hint = "the account has no credit left"
	case transient(code):
		e.repeat = often
		e.gone = code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout
	case code >= 300 && code < 400:
		e.Message = "the endpoint is elsewhere: " + redactURL(x.header.Get("Location"))
		e.Hint = "set --base-url to that address"
	default:
		e.Hint = c.hint(code, e.said)
	}
}

// reported explains an error that came inside an answer that began as a success.
func (c *Client) reported(e *Error, event *errorEvent) {
	e.said = parseServerError(event.payload)
	e.Message, e.cause, e.repeat = "gave up: "+e.said.Message, nil, often
	if isOverflow(0, e.said) {
		e.sentinel, e.repeat = agent.ErrContextOverflow, never
		return
	}
	if code, err := strconv.Atoi(e.said.Code); err == nil && code >= 400 && code < 600 && !transient(code) {
		e.repeat, e.Hint = never, c.hint(code, e.said)
	}
}

// transient reports whether another attempt may get another status.
func transient(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500 && status != http.StatusNotImplemented
}

func (c *Client) hint(status int, s serverError) string {
	text := strings.ToLower(s.Message)
	switch {
	case status == http.StatusUnauthorized && c.o.APIKey == "":
		return "the endpoint wants a key: set OPENAI_API_KEY"
	case status == http.StatusUnauthorized:
		return "the endpoint refuses the key: set OPENAI_API_KEY to a valid one"
	case status == http.StatusForbidden:
		return "the key may not use this model: set OPENAI_API_KEY or --model to what the endpoint allows"
	case status == http.StatusMethodNotAllowed:
		return "check --base-url: it usually ends in /v1"
	case status == http.StatusRequestEntityTooLarge:
		return "a proxy in front of the model limits the size of requests: raise its limit"
	case s.Param == "temperature" || strings.Contains(text, "'temperature'"):
		return "set --temperature to what the model allows"
	}
	return ""
}

// mangled explains a success that cannot be used.
func (c *Client) mangled(x *exchange, err error) (string, repetition) {
	if errors.Is(err, errUnusable) {
		return err.Error(), never
	}
	if strings.Contains(x.header.Get("Content-Type"), "html") {
		return "answered with " + parseServerError(x.raw).Message + " instead of a completion: " +
			c.o.Hints.Replace("check --base-url, it usually ends in /v1"), never
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isConnection(err) {
		return "the connection broke in the middle of the answer", often
	}
	return "the answer cannot be used: " + err.Error(), often
}

// unreachable explains a request that got no answer at all.
func unreachable(err error) (message, hint string, r repetition) {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the message has the URL already, and this one may hold a password
	}
	message = err.Error()
	if name, ok := errors.AsType[*net.DNSError](err); ok && name.IsNotFound {
		return message, "check the host in --base-url", twice
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return message, "is the server running, and is --base-url right?", often
	}
	if strings.Contains(message, "server gave HTTP response to HTTPS client") {
		return message, "use http:// in --base-url", never
	}
	if strings.Contains(message, "x509:") || strings.Contains(message, "certificate") {
		return message, "the endpoint's certificate is not trusted here", never
	}
	return message, "", often
}

// isConnection reports whether a connection failed: every error of a socket, a system call's too, is a net.Error.
func isConnection(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok
}

// redact removes the API key from a text, in case the server repeated it.
func (c *Client) redact(text string) string {
	if len(c.o.APIKey) < 4 { // too short to be a secret, too common to be taken out
		return text
	}
	return strings.ReplaceAll(text, c.o.APIKey, "[key]")
}

func redactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "an unreadable address"
	}
	return u.Redacted()
}
