package foreign

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/env"
	"deepswe/env/local"
	"deepswe/env/testkit"
)

// BenchmarkCall measures a call with a conversation of that many kB and a model that answers at once, from a sandbox's
// loopback through its guest. That is all that the gateway adds, and the agent's side of HTTP. Agents ask at the same
// time, each in its own sandbox. cpu-ms/op is the CPU time of one call, including the guest's.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct{ agents, size int }{{1, 20}, {1, 200}, {128, 20}, {128, 200}} {
		b.Run(fmt.Sprintf("agents=%d/kB=%d", c.agents, c.size), func(b *testing.B) { benchmarkCalls(b, c.agents, c.size<<10) })
	}
}

func benchmarkCalls(b *testing.B, agents, size int) {
	provider, err := local.NewHost(local.Options{Scratch: b.TempDir()})
	if err != nil {
		b.Skip(err)
	}
	defer provider.Close()
	var urls []string
	for range agents {
		sb, err := provider.Start(b.Context(), env.Spec{})
		if err != nil {
			b.Fatal(err)
		}
		defer sb.Close(context.WithoutCancel(b.Context()))
		port := testkit.FreePort(b)
		l, err := sb.(listening).Listen(b.Context(), port)
		if err != nil {
			b.Fatal(err)
		}
		g := newGateway(b, counting(), agent.Limits{Steps: -1})
		defer g.listen(l, testKey)()
		urls = append(urls, fmt.Sprintf("http://127.0.0.1:%d/v1/chat/completions", port))
	}
	const line = `The parser reads \"one\" line after the other.\n`
	text := strings.Repeat(line, size/len(line))
	var work sync.WaitGroup
	var calls atomic.Int64
	before := processorTime(b)
	for b.ResetTimer(); len(urls) > 0; urls = urls[1:] {
		url := urls[0]
		work.Go(func() {
			c := client{url: url, key: testKey}
			for n := calls.Add(1); n <= int64(b.N); n = calls.Add(1) {
				body := fmt.Sprintf(`{"messages":[{"role":"user","content":"%d %s"}]}`, n, text)
				if status, answer, err := c.ask(b.Context(), "", body); err != nil || status != http.StatusOK {
					b.Errorf("status %d: %s (%v)", status, answer, err)
				}
			}
		})
	}
	work.Wait()
	b.StopTimer()
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// processorTime returns the CPU time of this process and of the guests that it has started.
func processorTime(b *testing.B) time.Duration {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		b.Fatal(err)
	}
	total := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	var children []byte
	lists, err := filepath.Glob("/proc/self/task/*/children") // of each thread that started some
	for _, list := range lists {
		some, readErr := os.ReadFile(list)
		children, err = append(children, some...), errors.Join(err, readErr)
	}
	if err != nil {
		b.Fatal(err)
	}
	for _, pid := range strings.Fields(string(children)) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue // it has ended
		}
		var user, system int64
		_, rest, _ := strings.Cut(string(stat), ") ")
		if _, err := fmt.Sscan(strings.Join(strings.Fields(rest)[11:13], " "), &user, &system); err != nil {
			b.Fatal(err)
		}
		total += time.Duration(user+system) * 10 * time.Millisecond
	}
	return total
}
