//go:build linux

package local

import (
	"fmt"
	"strings"
	"testing"
)

// When a guest has crashed, the reason is kept, but not the state of all its threads.
func TestTail(t *testing.T) {
	trace := strings.Repeat("goroutine 7 gp=0x1 m=nil [runnable]:\n\tproc.go:462 +0xce\n", 500)
	for _, tt := range []struct{ said, want string }{
		{"bwrap: No permissions to create new namespace\n", "bwrap: No permissions to create new namespace"},
		{"fatal error: runtime: cannot allocate memory\n\nruntime stack:\nruntime.throw()\n\n" + trace,
			"fatal error: runtime: cannot allocate memory"},
		{"panic: no such thing\n\n" + trace, "panic: no such thing"},
		{strings.Repeat("x", 100_000) + "end", strings.Repeat("x", 4093) + "end"},
	} {
		var said tail
		fmt.Fprint(&said, tt.said)
		if got := said.String(); got != tt.want {
			t.Errorf("got %.200q", got)
		}
	}
}
