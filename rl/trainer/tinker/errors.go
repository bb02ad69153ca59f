package tinker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"deepswe/rl"
)

// The kinds of failures. All but the first say that the same request could only fail again.
var (
	// ErrUnavailable: the server did not answer for as long as it was waited for.
	ErrUnavailable = errors.New("the trainer does not answer")
	// ErrOperation: the server accepted the operation, and it failed.
	ErrOperation = errors.New("the trainer's operation failed")
	// ErrInvalid: the server refused the request, or it was refused here before it was sent.
	ErrInvalid = errors.New("invalid request to the trainer")
	// ErrUnknown: the server does not know a session, a model, a checkpoint or a future.
	ErrUnknown = errors.New("the trainer does not know it")
	// ErrConflict: a name or a sequence number is in use.
	ErrConflict = errors.New("the trainer has that already")
	// ErrExpired: the server has thrown the result away.
	ErrExpired = errors.New("the trainer has dropped the result")
	// ErrPaused: the account is paused.
	ErrPaused = errors.New("the trainer's account is paused")
	// ErrRateLimited: the server goes on refusing because of too many requests.
	ErrRateLimited = errors.New("the trainer limits the rate of requests")
	// ErrAccess: the key is missing or not accepted.
	ErrAccess = errors.New("the trainer does not accept the key")
	// ErrServer: the server failed in a way that it does not explain.
	ErrServer = errors.New("the trainer failed")
)

// errLong is an ErrInvalid.
var errLong = fmt.Errorf("%w: %w", ErrInvalid, rl.ErrTooLong)

// Error is an answer with which a request ended. It wraps one of the kinds and, where the state of the weights is no
// longer known, rl.ErrTrainerLost.
type Error struct {
	Operation string
	Status    int // 0 where there was no answer
	Kind      error
	Detail    string
	// Lost is set where the weights on the server are gone or no longer known.
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
	return b.String()
}

func (e *Error) Unwrap() []error {
	if e.Lost {
		return []error{e.Kind, rl.ErrTrainerLost}
	}
	return []error{e.Kind}
}

// lost marks an error after which the weights are not known.
func lost(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		own := *e
		own.Lost = true
		return &own
	}
	return err
}

// kindOf classifies an answer to a request. Of a future, 400 is a failed operation.
func kindOf(status int, future bool) error {
	switch status {
	case http.StatusBadRequest:
		if future {
			return ErrOperation
		}
		return ErrInvalid
	case http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return ErrInvalid
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrAccess
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return ErrUnknown
	case http.StatusConflict:
		return ErrConflict
	case http.StatusGone:
		return ErrExpired
	case http.StatusPaymentRequired:
		return ErrPaused
	case http.StatusTooManyRequests:
		return ErrRateLimited
	}
	return ErrServer
}

// gone reports whether an answer says that the server no longer has the model: it was restarted, or the session
// expired.
func gone(detail string) bool {
	return strings.Contains(detail, "not loaded") || strings.Contains(detail, "stale request")
}

// maxDetail bounds what is shown of an answer: validation errors repeat the whole input.
const maxDetail = 300

// detailOf is what an answer with an error status says: its detail, the list of what did not validate, or plain text.
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
