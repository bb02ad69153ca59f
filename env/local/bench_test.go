//go:build linux

package local_test

import (
	"bytes"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/local"
)

// providers returns the providers to compare.
func providers(b *testing.B) map[string]env.Provider {
	b.Helper()
	all := map[string]env.Provider{}
	host, err := local.NewHost(local.Options{Scratch: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	all["host"] = host
	if bwrap, err := local.NewBwrap(local.Options{Scratch: b.TempDir()}); err == nil {
		all["bwrap"] = bwrap
	}
	b.Cleanup(func() {
		for _, p := range all {
			p.Close()
		}
	})
	return all
}

func begin(b *testing.B, p env.Provider) env.Sandbox {
	b.Helper()
	sb, err := p.Start(b.Context(), env.Spec{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { sb.Close(b.Context()) })
	return sb
}

// BenchmarkStart measures the time to the first answer. Compare it with BenchmarkBareBwrap.
func BenchmarkStart(b *testing.B) {
	for name, p := range providers(b) {
		b.Run(name, func(b *testing.B) {
			var closing time.Duration
			for b.Loop() {
				sb, err := p.Start(b.Context(), env.Spec{})
				if err != nil {
					b.Fatal(err)
				}
				if err := sb.Ping(b.Context()); err != nil {
					b.Fatal(err)
				}
				began := time.Now()
				if err := sb.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
				closing += time.Since(began)
			}
			b.ReportMetric(float64(closing.Microseconds())/1000/float64(b.N), "close-ms/op")
		})
	}
}

func BenchmarkBareBwrap(b *testing.B) {
	program, err := exec.LookPath("bwrap")
	if err != nil {
		b.Skip(err)
	}
	for b.Loop() {
		cmd := exec.Command(program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "/bin/true")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
}

func BenchmarkView4K(b *testing.B) {
	for name, p := range providers(b) {
		b.Run(name, func(b *testing.B) {
			sb := begin(b, p)
			if _, err := sb.Write(b.Context(), "f", bytes.Repeat([]byte("0123456\n"), 512), env.WriteOptions{}); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, _, err := sb.Read(b.Context(), "f", env.ReadOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBash compares the providers with "plain", which starts the same shell without a sandbox.
func BenchmarkBash(b *testing.B) {
	for name, p := range providers(b) {
		b.Run(name, func(b *testing.B) {
			sb := begin(b, p)
			for b.Loop() {
				if _, err := sb.Run(b.Context(), env.Command{Line: "true"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if out, err := exec.Command("/bin/bash", "-c", "true").CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		}
	})
}

// BenchmarkMany measures a view while 32 sandboxes are asked at once.
func BenchmarkMany(b *testing.B) {
	for name, p := range providers(b) {
		b.Run(name, func(b *testing.B) {
			var all []env.Sandbox
			for range 32 {
				sb := begin(b, p)
				if _, err := sb.Write(b.Context(), "f", bytes.Repeat([]byte("0123456\n"), 512), env.WriteOptions{}); err != nil {
					b.Fatal(err)
				}
				all = append(all, sb)
			}
			var mu sync.Mutex
			var took []time.Duration
			for b.Loop() {
				var calls sync.WaitGroup
				for _, sb := range all {
					calls.Go(func() {
						began := time.Now()
						_, _, err := sb.Read(b.Context(), "f", env.ReadOptions{})
						mu.Lock()
						defer mu.Unlock()
						if took = append(took, time.Since(began)); err != nil {
							b.Error(err)
						}
					})
				}
				calls.Wait()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
		})
	}
}
