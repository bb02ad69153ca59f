package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// NewLog returns a logger for people: one line for each record, like the other messages of a command.
func NewLog(w io.Writer) *slog.Logger {
	return slog.New(&lineHandler{w: w, mu: new(sync.Mutex)})
}

type lineHandler struct {
	w      io.Writer
	mu     *sync.Mutex
	prefix string // attributes that came with the logger
}

// Enabled implements slog.Handler: what is less than a warning is not for people.
func (h *lineHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(h.prefix)
	r.Attrs(func(a slog.Attr) bool {
		appendAttr(&b, a)
		return true
	})
	detail := ""
	if b.Len() > 0 {
		detail = " (" + strings.TrimPrefix(b.String(), ", ") + ")"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := fmt.Fprintf(h.w, "deepswe: %s: %s%s\n", word(r.Level), Plain(r.Message), Plain(detail))
	return err
}

// WithAttrs implements slog.Handler.
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	b.WriteString(h.prefix)
	for _, a := range attrs {
		appendAttr(&b, a)
	}
	return &lineHandler{w: h.w, mu: h.mu, prefix: b.String()}
}

// WithGroup implements slog.Handler. Groups mean nothing to people.
func (h *lineHandler) WithGroup(string) slog.Handler { return h }

// appendAttr adds what there is to say: a status of 0 is none, and nobody reads nanoseconds.
func appendAttr(b *strings.Builder, a slog.Attr) {
	switch v := a.Value.Resolve(); {
	case v.Equal(slog.Int64Value(0)) || v.Equal(slog.StringValue("")) || v.Kind() == slog.KindAny && v.Any() == nil:
	case v.Kind() == slog.KindDuration:
		fmt.Fprintf(b, ", %s %s", a.Key, v.Duration().Round(10*time.Millisecond))
	default:
		fmt.Fprintf(b, ", %s %v", a.Key, v)
	}
}

func word(l slog.Level) string {
	if l >= slog.LevelError {
		return "error"
	}
	return "warning"
}
