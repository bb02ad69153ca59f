package foreign

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"deepswe/agent"
)

// BenchmarkCall measures a call with a conversation of 200 kB whose model answers at once: what the gateway adds.
func BenchmarkCall(b *testing.B) {
	g := &gateway{
		Agent: &agent.Agent{Settings: agent.Settings{Model: counting(), Limits: agent.Limits{Steps: -1}}},
		tree:  newTree(), past: map[string][]agent.Reply{}, waiting: func() func() { return func() {} }, now: time.Now,
	}
	g.life, g.end = context.WithCancelCause(b.Context())
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer g.listen(l, "")()
	text := strings.Repeat("The parser reads one line after the other. ", 5<<10)
	for n := range b.N {
		resp, err := http.Post("http://"+l.Addr().String()+"/v1/chat/completions", "application/json",
			strings.NewReader(fmt.Sprintf(`{"messages":[{"role":"user","content":"%d %s"}]}`, n, text)))
		if err != nil {
			b.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			b.Fatal(resp.Status)
		}
	}
}
