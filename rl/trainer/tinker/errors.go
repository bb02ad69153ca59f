package tinker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"deepswe/rl"
)

// The kinds of failures. Except for errUnavailable, trying the same request again would not help.
var (
	// errUnavailable: the server did not answer in time.
	errUnavailable = errors.New("the trainer does not answer")
	// ErrOperation: the server accepted the operation, and it failed.
	ErrOperation = errors.New("the trainer's operation failed")
	// ErrInvalid: the request is invalid. It may have been refused before it was sent.
	ErrInvalid = errors.New("invalid request to the trainer")
	// ErrUnknown: the server does not know a session, a model, a checkpoint or a future.
	ErrUnknown = errors.New("not known to the trainer")
	// ErrConflict: a name or a sequence number is in use.
	ErrConflict = errors.New("already in use on the trainer")
	// ErrExpired: the server has dropped the result.
	ErrExpired = errors.New("the trainer has dropped the result")
	// errPaused: the account is paused.
	errPaused = errors.New("the trainer's account is paused")
	// errRateLimited: the server keeps refusing because of too many requests.
	errRateLimited = errors.New("the trainer limits the rate of requests")
	// ErrAccess: the key is missing or not accepted.
	ErrAccess = errors.New("the trainer does not accept the key")
	// errRepeated: the server gave its response to an earlier operation, so it may not have executed this one.
	errRepeated = errors.New("the trainer repeated an earlier response")
	// errDoubled: the server executed an operation of an update twice.
	errDoubled = errors.New("the trainer executed an operation twice")
	// errServer: the server failed without an explanation.
	errServer = errors.New("the trainer failed")
)

// errLong reports a row that is longer than the server takes.
var errLong = fmt.Errorf("%w: %w", ErrInvalid, rl.ErrTooLong)

// errLarge reports a request that is larger than the server takes.
var errLarge = fmt.Errorf("%w: too large", ErrInvalid)

// Error is the error of a request. It wraps one of the kinds and, if the state of the weights is not known,
// rl.ErrTrainerLost. It also wraps its cause.
type Error struct {
	Operation string
	Status    int // 0 without a response
	Kind      error
	Detail    string
	// Cause is set where a context may have ended the request.
	Cause error
	// Lost is set if the weights on the server are lost or not known.
	Lost bool
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v", e.Operation, e.Kind)
	if e.Status != 0 {
		fmt.Fprintf(&b, " (%d)", e.Status)
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	b.WriteString(e.hint())
	return b.String()
}

// invalidf returns the error of a request that is not sent.
func invalidf(operation, format string, args ...any) error {
	return &Error{Operation: operation, Kind: ErrInvalid, Detail: fmt.Sprintf(format, args...)}
}

// faultf returns the error of a result that the server should not have given.
func faultf(operation, format string, args ...any) error {
	return &Error{Operation: operation, Kind: errServer, Detail: fmt.Sprintf(format, args...)}
}

// hint returns what the user can do about an error whose detail is the server's.
func (e *Error) hint() string {
	switch {
	case e.Kind == ErrAccess:
		return "; to fix: set " + KeyVariable + " to a key of this server"
	case e.Operation == "create_model" && strings.Contains(e.Detail, "must be between"):
		return "; to fix: set trainer.rank to one that the server takes"
	case isFull(e):
		return "; to fix: end other runs; a killed one's model is removed when its session expires, after five minutes"
	case e.Kind == errLarge:
		return "; to fix: lower algorithm.max_length, or let the server, or the proxy before it, take larger requests"
	case e.Kind == errServer && strings.HasPrefix(e.Detail, errGarbled.Error()):
		return "; to fix: see what answers there: it may be a proxy's page, or another server"
	case e.Kind == errServer && e.Status >= http.StatusInternalServerError:
		return "; the server's log says why"
	}
	return ""
}

// isFull reports whether an error says that the server has no room for another model: SkyRL's JAX backend counts them,
// FSDP has room for one, and all GPU backends for one of which all weights are trained.
func isFull(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Operation == "create_model" && slices.ContainsFunc([]string{
		"Maximum number", "supports a single LoRA adapter", "already has a 'policy' model",
	}, func(said string) bool { return strings.Contains(e.Detail, said) })
}

func (e *Error) Unwrap() []error {
	wrapped := []error{e.Kind}
	if e.Lost {
		wrapped = append(wrapped, rl.ErrTrainerLost)
	}
	if e.Cause != nil {
		wrapped = append(wrapped, e.Cause)
	}
	return wrapped
}

// lost marks an error after which the state of the weights is not known.
func lost(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		own := *e
		own.Lost = true
		return &own
	}
	return err
}

// kindOf classifies the status of a response.
func kindOf(status int) error { return cmp.Or(kinds[status], errServer) }

// kinds are the failures that have a status.
var kinds = map[int]error{
	http.StatusBadRequest: ErrInvalid, http.StatusUnprocessableEntity: ErrInvalid,
	http.StatusRequestEntityTooLarge: errLarge, http.StatusUnauthorized: ErrAccess, http.StatusForbidden: ErrAccess,
	http.StatusNotFound: ErrUnknown, http.StatusMethodNotAllowed: ErrUnknown, http.StatusConflict: ErrConflict,
	http.StatusGone: ErrExpired, http.StatusPaymentRequired: errPaused, http.StatusTooManyRequests: errRateLimited,
}

// gone reports whether an error's detail says that the server no longer has the model, because it was restarted or the
// session expired.
func gone(detail string) bool {
	return strings.Contains(detail, "not loaded") || strings.Contains(detail, "stale request")
}

// maxDetail is the longest detail to show. Validation errors repeat the whole input.
const maxDetail = 300

// detailOf returns the explanation in a response with an error status: its detail, its list of validation errors, or
// plain text.
func detailOf(body []byte) string {
	var answer struct {
		Detail json.RawMessage `json:"detail"`
	}
	text := string(body)
	if json.Unmarshal(body, &answer) == nil && len(answer.Detail) > 0 {
		var list []struct {
			Location []any  `json:"loc"`
			Message  string `json:"msg"`
		}
		if json.Unmarshal(answer.Detail, &list) == nil {
			var parts []string
			for _, p := range list {
				var path []string
				for _, l := range p.Location {
					path = append(path, fmt.Sprint(l))
				}
				parts = append(parts, strings.Join(path, ".")+": "+p.Message)
			}
			text = strings.Join(parts, "; ")
		} else if json.Unmarshal(answer.Detail, &text) != nil {
			text = string(answer.Detail)
		}
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > maxDetail {
		text = strings.ToValidUTF8(text[:maxDetail], "") + "…"
	}
	return text
}
