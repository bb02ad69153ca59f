package docker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"deepswe/env"
)

// BenchmarkReady is the time from asking for a sandbox to its first answer, beside the bare creation and start of a
// container of the same image with the same limits.
func BenchmarkReady(b *testing.B) {
	p := provider(b, Options{})
	spec := env.Spec{Image: bookworm}
	start(b, p, spec)
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			id, err := plainStart(b.Context(), p.daemons[0], bookworm)
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := p.daemons[0].remove(b.Context(), id); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("sandbox", func(b *testing.B) {
		for b.Loop() {
			s, err := p.Start(b.Context(), spec)
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Ping(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := s.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}

// plainStart is what starting a container costs without us.
func plainStart(ctx context.Context, d *daemon, image string) (string, error) {
	created, err := d.cli.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{Image: image, Cmd: []string{"sleep", "60"}, Labels: d.p.labels(kindOriginal, "", "")},
		HostConfig: &container.HostConfig{
			NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}, CapDrop: []string{"ALL"},
			Resources: container.Resources{Memory: 4 << 30, MemorySwap: 4 << 30, NanoCPUs: 2e9, PidsLimit: new(int64(512))},
		},
	})
	if err != nil {
		return "", err
	}
	_, err = d.cli.ContainerStart(ctx, created.ID, client.ContainerStartOptions{})
	return created.ID, err
}

// BenchmarkRemove is the time that it takes to remove a sandbox.
func BenchmarkRemove(b *testing.B) {
	p := provider(b, Options{})
	for b.Loop() {
		b.StopTimer()
		s, err := p.Start(b.Context(), env.Spec{Image: bookworm})
		if err != nil {
			b.Fatal(err)
		}
		must(b, s, "sleep 100 >/dev/null 2>&1 & true")
		b.StartTimer()
		began := time.Now()
		if err := s.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		if testing.Verbose() {
			fmt.Println("removed in", time.Since(began))
		}
	}
}

// BenchmarkVerbs is what a call costs, round trip.
func BenchmarkVerbs(b *testing.B) {
	p := provider(b, Options{})
	s := start(b, p, env.Spec{Image: bookworm})
	if _, err := s.Write(b.Context(), "/testbed/f", make([]byte, 4096), env.WriteOptions{Parents: true}); err != nil {
		b.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"ping": func() error { return s.Ping(b.Context()) },
		"view": func() error { _, _, err := s.Read(b.Context(), "/testbed/f", env.ReadOptions{}); return err },
		"bash": func() error { _, err := s.Run(b.Context(), env.Command{Line: "true"}); return err },
		// What the same costs without us: a shell on the host, and a Python program through the daemon.
		"bash on the host": func() error { return exec.CommandContext(b.Context(), "bash", "-c", "true").Run() },
		"exec of Python": func() error {
			_, _, err := execIn(b.Context(), s, "python3", "-c", "import argparse, json, pathlib, re, subprocess; print(open('/testbed/f').read())")
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// execIn runs a program in a container through the daemon, the way that tools without a guest do it: three requests,
// and a process that is new to the container.
func execIn(ctx context.Context, s *Sandbox, argv ...string) (stdout []byte, exit int, err error) {
	cli := s.d.cli
	created, err := cli.ExecCreate(ctx, s.id, client.ExecCreateOptions{Cmd: argv, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return nil, 0, err
	}
	attached, err := cli.ExecAttach(ctx, created.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, 0, err
	}
	defer attached.Close()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, io.Discard, attached.Reader); err != nil {
		return nil, 0, err
	}
	done, err := cli.ExecInspect(ctx, created.ID, client.ExecInspectOptions{})
	return out.Bytes(), done.ExitCode, err
}
