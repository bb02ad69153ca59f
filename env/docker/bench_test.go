package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"deepswe/env"
)

// What sandboxes cost, each number beside the daemon's or the machine's own primitive:
//
//	go test -run=none -bench=. ./env/docker

// viewed is the file that is viewed: 4 KB of lines.
const viewed = "/tmp/deepswe-bench.txt"

func viewable(b *testing.B, p *Provider) *Sandbox {
	b.Helper()
	s := start(b, p, env.Spec{Image: bookworm})
	text := bytes.Repeat([]byte("a line of sixty-four characters, the last of which is a newline\n"), 64)
	if _, err := s.Write(b.Context(), viewed, text, env.WriteOptions{}); err != nil {
		b.Fatal(err)
	}
	return s
}

func view(ctx context.Context, s env.Sandbox) error {
	_, _, err := s.Read(ctx, viewed, env.ReadOptions{})
	return err
}

// BenchmarkView measures a view of a 4 KB file. For comparison, it measures an echo of 4 KB through an attached stream,
// and what tools do without a guest: an exec of a Python program for each call.
func BenchmarkView(b *testing.B) {
	p := provider(b, Options{})
	s := viewable(b, p)
	b.Run("sandbox", func(b *testing.B) { measure(b, func() error { return view(b.Context(), s) }) })
	b.Run("echo", func(b *testing.B) {
		call := echo(b, p)
		measure(b, call)
	})
	b.Run("exec-of-python", func(b *testing.B) {
		const tool = "/tmp/deepswe-bench.py"
		if _, err := s.Write(b.Context(), tool, []byte(pythonView), env.WriteOptions{}); err != nil {
			b.Fatal(err)
		}
		measure(b, func() error {
			return execIn(b.Context(), s, "/bin/sh", "-c", "timeout 90 python3 "+tool+" view --path "+viewed)
		})
	})
}

// pythonView is a typical tool: a command line program with the usual imports, which keeps its state in a file.
const pythonView = `import argparse, ast, json, os, pathlib, re, subprocess, sys, typing
parser = argparse.ArgumentParser()
parser.add_argument("command")
parser.add_argument("--path")
parser.add_argument("--view_range")
args = parser.parse_args()
state = pathlib.Path("/tmp/deepswe-bench-state.json")
history = json.loads(state.read_text()) if state.exists() else {}
lines = pathlib.Path(args.path).read_text().split("\\n")
print("\\n".join("%6d %s" % (n, line) for n, line in enumerate(lines, 1)))
state.write_text(json.dumps(history))
`

// BenchmarkParallelView measures a view while 32 sandboxes view at once, and for comparison as many echoes.
func BenchmarkParallelView(b *testing.B) {
	p := provider(b, Options{})
	b.Run("sandbox", func(b *testing.B) {
		measureParallel(b, func() func() error {
			s := viewable(b, p)
			return func() error { return view(b.Context(), s) }
		})
	})
	b.Run("echo", func(b *testing.B) {
		measureParallel(b, func() func() error { return echo(b, p) })
	})
}

// BenchmarkBash measures "bash -c true" in a sandbox and on this machine.
func BenchmarkBash(b *testing.B) {
	s := start(b, provider(b, Options{}), env.Spec{Image: bookworm})
	b.Run("sandbox", func(b *testing.B) {
		measure(b, func() error {
			_, err := s.Run(b.Context(), env.Command{Line: "true"})
			return err
		})
	})
	b.Run("host", func(b *testing.B) {
		measure(b, func() error { return exec.CommandContext(b.Context(), "bash", "-c", "true").Run() })
	})
}

// BenchmarkReady measures the time from the request for a sandbox to its first answer, and that of its removal. For
// comparison, it does the same with a plain container of the same image and limits.
func BenchmarkReady(b *testing.B) {
	p := provider(b, Options{})
	spec := env.Spec{Image: bookworm}
	start(b, p, spec) // so that the guest is installed
	lives := func(b *testing.B, begin func() (end func() error, err error)) {
		var ready, removed []time.Duration
		for b.Loop() {
			began := time.Now()
			end, err := begin()
			if err != nil {
				b.Fatal(err)
			}
			ready = append(ready, time.Since(began))
			began = time.Now()
			if err := end(); err != nil {
				b.Fatal(err)
			}
			removed = append(removed, time.Since(began))
		}
		b.ReportMetric(percentile(ready, 50), "p50-ms/ready")
		b.ReportMetric(percentile(removed, 50), "p50-ms/removed")
	}
	b.Run("sandbox", func(b *testing.B) {
		lives(b, func() (func() error, error) {
			s, err := p.Start(b.Context(), spec)
			if err != nil {
				return nil, err
			}
			return func() error { return s.Close(b.Context()) }, s.Ping(b.Context())
		})
	})
	b.Run("container", func(b *testing.B) {
		lives(b, func() (func() error, error) {
			id, _, err := plainStart(b.Context(), p.daemons[0], "sleep", "1000")
			return func() error { return p.daemons[0].remove(b.Context(), id) }, err
		})
	})
}

// plainStart starts a container without a guest, and attaches to it.
func plainStart(ctx context.Context, d *daemon, command ...string) (string, client.HijackedResponse, error) {
	var none client.HijackedResponse
	created, err := d.cli.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{
			Image: bookworm, Cmd: command, Labels: d.p.labels(kindSandbox, "bench", ""),
			OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		},
		HostConfig: &container.HostConfig{
			NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}, CapDrop: []string{"ALL"},
			Resources: container.Resources{Memory: 4 << 30, MemorySwap: 4 << 30, NanoCPUs: 2e9, PidsLimit: new(int64(512))},
		},
	})
	if err != nil {
		return "", none, err
	}
	attached, err := d.cli.ContainerAttach(ctx, created.ID, client.ContainerAttachOptions{
		Stream: true, Stdin: true, Stdout: true, Stderr: true,
	})
	if err != nil {
		return "", none, errors.Join(err, d.remove(ctx, created.ID))
	}
	if _, err := d.cli.ContainerStart(ctx, created.ID, client.ContainerStartOptions{}); err != nil {
		return "", none, errors.Join(err, d.remove(ctx, created.ID))
	}
	return created.ID, attached.HijackedResponse, nil
}

// echo returns a call that sends 4 KB to a container and reads them back.
func echo(b *testing.B, p *Provider) func() error {
	b.Helper()
	id, attached, err := plainStart(b.Context(), p.daemons[0], "cat")
	if err != nil {
		b.Fatal(err)
	}
	s := newStream(attached, func(err error) error { return err })
	b.Cleanup(func() {
		if err := errors.Join(s.Close(), p.daemons[0].remove(context.WithoutCancel(b.Context()), id)); err != nil {
			b.Error(err)
		}
	})
	text := make([]byte, 4096)
	return func() error {
		if _, err := s.Write(text); err != nil {
			return err
		}
		_, err := io.ReadFull(s, text)
		return err
	}
}

// execIn runs a program in a container through the daemon, which takes three requests and a new process.
func execIn(ctx context.Context, s *Sandbox, argv ...string) error {
	cli := s.d.cli
	created, err := cli.ExecCreate(ctx, s.id, client.ExecCreateOptions{Cmd: argv, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	attached, err := cli.ExecAttach(ctx, created.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer attached.Close()
	if _, err := stdcopy.StdCopy(io.Discard, io.Discard, attached.Reader); err != nil {
		return err
	}
	done, err := cli.ExecInspect(ctx, created.ID, client.ExecInspectOptions{})
	if err == nil && done.ExitCode != 0 {
		err = fmt.Errorf("%v: exit code %d", argv, done.ExitCode)
	}
	return err
}

// measure also reports the median of a call, because the mean depends too much on the machine's other work.
func measure(b *testing.B, call func() error) {
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := call(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	b.ReportMetric(percentile(took, 50), "p50-ms")
	b.ReportMetric(percentile(took, 95), "p95-ms")
}

// measureParallel measures 20 calls in a row in each of 32 places at once.
func measureParallel(b *testing.B, place func() func() error) {
	calls := make([]func() error, 32)
	var starting sync.WaitGroup
	for i := range calls {
		starting.Go(func() { calls[i] = place() })
	}
	starting.Wait()
	var mu sync.Mutex
	var took []time.Duration
	for b.Loop() {
		var wg sync.WaitGroup
		for _, call := range calls {
			wg.Go(func() {
				for range 20 {
					began := time.Now()
					if err := call(); err != nil {
						b.Error(err)
					}
					now := time.Since(began)
					mu.Lock()
					took = append(took, now)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	}
	b.ReportMetric(percentile(took, 50), "p50-ms")
	b.ReportMetric(percentile(took, 95), "p95-ms")
}

// percentile is the nearest-rank percentile in milliseconds.
func percentile(took []time.Duration, p int) float64 {
	slices.Sort(took)
	return took[max((len(took)*p+99)/100, 1)-1].Seconds() * 1000
}
