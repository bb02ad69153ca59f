package envcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"deepswe/env"
	"deepswe/env/docker"
)

// How often each thing is measured. Cheap things are measured often, what costs a container's life a few times.
const (
	benchCalls     = 300
	benchExecs     = 15
	benchLives     = 15
	benchSandboxes = 32
	benchTimeout   = 10 * time.Minute
)

// benchmark is what --bench measures, in milliseconds. A field that could not be measured is absent.
type benchmark struct {
	Type    string `json:"type"`
	Version int    `json:"version"`
	Image   string `json:"image"`
	Docker  string `json:"docker"`

	// View is one view of a 4 KB file; ExecPython is the same through one exec of a Python program per call.
	View       *float64 `json:"view_p50_ms,omitempty"`
	ExecPython *float64 `json:"exec_python_p50_ms,omitempty"`
	// Bash is "bash -c true" in the sandbox, HostBash on this machine.
	Bash     *float64 `json:"bash_p50_ms,omitempty"`
	HostBash *float64 `json:"host_bash_p50_ms,omitempty"`
	// Ready is from asking for a sandbox to its first answer, BareStart the creation and start of a bare container.
	Ready     *float64 `json:"ready_p50_ms,omitempty"`
	BareStart *float64 `json:"bare_start_p50_ms,omitempty"`
	Remove    *float64 `json:"remove_p50_ms,omitempty"`
	// ParallelView is the 95th percentile of a view while 32 sandboxes view at once.
	ParallelView *float64 `json:"parallel_view_p95_ms,omitempty"`
}

func runBench(ctx context.Context, d Deps, o doctorOptions) error {
	ctx, cancel := context.WithTimeout(ctx, benchTimeout)
	defer cancel()
	p, err := d.Docker(ctx, o.hosts)
	if err != nil {
		return &exitError{exitSandbox, fmt.Errorf("bench: %w", err)}
	}
	defer p.Close()
	b, err := bench(ctx, d.Err, p, o)
	if err != nil {
		if ctx.Err() == nil {
			err = &exitError{exitSandbox, fmt.Errorf("bench: %w", err)}
		}
		return err
	}
	if o.json {
		return line(d.Out, b)
	}
	_, err = io.WriteString(d.Out, b.text())
	return err
}

// chooseBenchImage prefers an image with Python, so that the comparison with one exec per call can be made.
func chooseBenchImage(ctx context.Context, p *docker.Provider, asked string) (string, error) {
	var note string
	for _, wanted := range [][]string{{"/bin/bash", "/usr/bin/python3"}, {"/bin/sh", "/usr/bin/python3"}, {"/bin/sh"}} {
		image, why, err := chooseImage(ctx, p, asked, wanted...)
		if err != nil || image != "" {
			return image, err
		}
		note = why
	}
	return "", errors.New(note)
}

func bench(ctx context.Context, progress io.Writer, p *docker.Provider, o doctorOptions) (*benchmark, error) {
	image, err := chooseBenchImage(ctx, p, o.image)
	if err != nil {
		return nil, err
	}
	b := &benchmark{Type: "bench", Version: 1, Image: image, Docker: p.Daemons()[0].Version}
	fmt.Fprintf(progress, "measuring on %s; this takes about a minute\n", image)
	for _, part := range []func(context.Context, *docker.Provider) error{b.calls, b.lives, b.parallel} {
		if err := part(ctx, p); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// viewed is the file that is viewed: 4 KB of lines.
const viewed = "/tmp/deepswe-bench.txt"

func benchSandbox(ctx context.Context, p *docker.Provider, image string) (*docker.Sandbox, error) {
	s, err := p.Start(ctx, env.Spec{Image: image, Run: "doctor", Rollout: "bench"})
	if err != nil {
		return nil, err
	}
	text := bytes.Repeat([]byte("a line of sixty-four characters, the last of which is a newline\n"), 64)
	if _, err := s.Write(ctx, viewed, text, env.WriteOptions{Parents: true}); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s.(*docker.Sandbox), nil
}

func view(ctx context.Context, s env.Sandbox) error {
	_, _, err := s.Read(ctx, viewed, env.ReadOptions{})
	return err
}

// calls measures what one call costs, and what it costs without a guest.
func (b *benchmark) calls(ctx context.Context, p *docker.Provider) (err error) {
	s, err := benchSandbox(ctx, p, b.Image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	if b.View, err = median(benchCalls, func() error { return view(ctx, s) }); err != nil {
		return err
	}
	if b.Bash, err = median(benchCalls, func() error {
		_, err := s.Run(ctx, env.Command{Line: "true"})
		return err
	}); err != nil {
		return err
	}
	if shell, lookErr := exec.LookPath("bash"); lookErr == nil {
		if b.HostBash, err = median(benchCalls, func() error { return exec.CommandContext(ctx, shell, "-c", "true").Run() }); err != nil {
			return err
		}
	}
	return b.python(ctx, s)
}

// python measures a view the way that it is done without a guest: for each call an exec of a shell, which starts a
// Python program under a time limit, which reads its state, shows the file and writes its state.
func (b *benchmark) python(ctx context.Context, s *docker.Sandbox) error {
	const tool = "/tmp/deepswe-bench.py"
	if _, err := s.Write(ctx, tool, []byte(pythonView), env.WriteOptions{}); err != nil {
		return err
	}
	call := func() (int, error) {
		_, exit, err := s.Exec(ctx, "/bin/sh", "-c", "timeout 90 python3 "+tool+" view --path '"+viewed+"'")
		return exit, err
	}
	if exit, err := call(); err != nil || exit != 0 {
		return err // no Python: nothing to compare with
	}
	var err error
	b.ExecPython, err = median(benchExecs, func() error {
		_, err := call()
		return err
	})
	return err
}

// pythonView is a tool of the usual make: a command line program with what such programs import.
const pythonView = `import argparse, ast, json, os, pathlib, re, subprocess, sys, typing
try:
    import chardet
except ImportError:
    chardet = None
parser = argparse.ArgumentParser()
parser.add_argument("command")
parser.add_argument("--path")
parser.add_argument("--view_range")
args = parser.parse_args()
state = pathlib.Path("/tmp/deepswe-bench-state.json")
history = json.loads(state.read_text()) if state.exists() else {}
data = pathlib.Path(args.path).read_bytes()
encoding = chardet.detect(data)["encoding"] if chardet else "utf-8"
lines = data.decode(encoding).split("\n")
print("\n".join("%6d %s" % (n, line) for n, line in enumerate(lines, 1)))
state.write_text(json.dumps(history))
`

// lives measures the life of a sandbox beside that of a bare container, in turns, so that both meet the same machine.
func (b *benchmark) lives(ctx context.Context, p *docker.Provider) error {
	var ready, bare, remove []time.Duration
	for range benchLives {
		began := time.Now()
		s, err := p.Start(ctx, env.Spec{Image: b.Image, Run: "doctor", Rollout: "bench"})
		if err != nil {
			return err
		}
		if err := s.Ping(ctx); err != nil {
			return errors.Join(err, s.Close(ctx))
		}
		ready = append(ready, time.Since(began))
		began = time.Now()
		if err := s.Close(ctx); err != nil {
			return err
		}
		remove = append(remove, time.Since(began))
		began = time.Now()
		stop, err := p.BareStart(ctx, b.Image)
		if err != nil {
			return err
		}
		bare = append(bare, time.Since(began))
		if err := stop(ctx); err != nil {
			return err
		}
	}
	b.Ready, b.BareStart, b.Remove = percentile(ready, 50), percentile(bare, 50), percentile(remove, 50)
	return nil
}

// parallel measures views while many sandboxes view at once.
func (b *benchmark) parallel(ctx context.Context, p *docker.Provider) error {
	const each = 50
	sandboxes := make([]*docker.Sandbox, benchSandboxes)
	took := make([][]time.Duration, benchSandboxes)
	failures := make([]error, benchSandboxes)
	all := func(f func(i int) error) error {
		var wg sync.WaitGroup
		for i := range sandboxes {
			wg.Go(func() { failures[i] = f(i) })
		}
		wg.Wait()
		return errors.Join(failures...)
	}
	err := all(func(i int) (err error) {
		sandboxes[i], err = benchSandbox(ctx, p, b.Image)
		return err
	})
	if err == nil {
		err = all(func(i int) error {
			for n := range each + each/10 { // the first ones do not count, as in median
				began := time.Now()
				if err := view(ctx, sandboxes[i]); err != nil {
					return err
				}
				if n >= each/10 {
					took[i] = append(took[i], time.Since(began))
				}
			}
			return nil
		})
	}
	closed := all(func(i int) error {
		if sandboxes[i] == nil {
			return nil
		}
		return sandboxes[i].Close(ctx)
	})
	b.ParallelView = percentile(slices.Concat(took...), 95)
	return errors.Join(err, closed)
}

// median is the median time of n calls, in milliseconds, after a few that do not count.
func median(n int, call func() error) (*float64, error) {
	took := make([]time.Duration, 0, n)
	for i := range n + n/10 {
		began := time.Now()
		if err := call(); err != nil {
			return nil, err
		}
		if i >= n/10 {
			took = append(took, time.Since(began))
		}
	}
	return percentile(took, 50), nil
}

// percentile is the nearest-rank percentile, in milliseconds with three decimals; nil of nothing.
func percentile(took []time.Duration, p int) *float64 {
	if len(took) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(took))
	rank := max((len(sorted)*p+99)/100, 1)
	return new(float64(sorted[rank-1].Microseconds()) / 1000)
}

func (b *benchmark) text() string {
	var t strings.Builder
	fmt.Fprintf(&t, "Docker %s, image %s; medians unless said otherwise\n\n", b.Docker, b.Image)
	row := func(what string, ours, other *float64, versus string) {
		if ours == nil {
			return
		}
		fmt.Fprintf(&t, "%-34s%9.3f ms", what, *ours)
		if other != nil && *ours > 0 {
			fmt.Fprintf(&t, "   %.3f ms %s", *other, versus)
			if ratio := *other / *ours; ratio >= 2 {
				fmt.Fprintf(&t, " (1/%.0f)", ratio)
			} else {
				fmt.Fprintf(&t, " (x%.2f)", *ours / *other)
			}
		}
		t.WriteByte('\n')
	}
	row("view of a 4 KB file", b.View, b.ExecPython, "by exec of Python")
	row("view, 32 sandboxes at once, p95", b.ParallelView, nil, "")
	row("bash -c true", b.Bash, b.HostBash, "on the host")
	row("ready for the first call", b.Ready, b.BareStart, "bare start")
	row("removal", b.Remove, nil, "")
	return t.String()
}
