//go:build linux

package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/env/testkit"
)

// private is a Docker daemon for one test, which can be stopped and started without affecting others.
type private struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	said bytes.Buffer
}

// privateDaemon starts a second daemon, and loads the busybox image into it.
func privateDaemon(t *testing.T) *private {
	t.Helper()
	program, err := exec.LookPath("dockerd")
	if err != nil || os.Getuid() != 0 {
		testkit.Skip(t, "dockerd", "a daemon of its own takes root and dockerd")
	}
	// t.TempDir does not work: a socket's path must be short, and the daemon's mounts must be gone before the removal.
	dir, err := os.MkdirTemp("", "dswed")
	if err != nil {
		t.Fatal(err)
	}
	p := &private{t: t, dir: dir, cmd: &exec.Cmd{Path: program}}
	t.Cleanup(func() {
		p.stop(syscall.SIGTERM)
		p.unmount()
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("removing the daemon's files: %v", err)
		}
		if t.Failed() {
			t.Logf("the daemon said:\n%s", p.said.String())
		}
	})
	p.start()
	p.load(busybox)
	return p
}

func (p *private) host() string { return "unix://" + filepath.Join(p.dir, "s") }

func (p *private) start() {
	p.t.Helper()
	p.cmd = exec.Command(p.cmd.Path, "--data-root", filepath.Join(p.dir, "data"), "--exec-root",
		filepath.Join(p.dir, "exec"),
		"--pidfile", filepath.Join(p.dir, "pid"), "-H", p.host(),
		"--log-level=error", "--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false")
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	// The daemon gets its own network namespace, because one without a bridge removes docker0, which may be another's.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM, Cloneflags: syscall.CLONE_NEWNET}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	cli, err := client.New(client.WithHost(p.host()))
	if err != nil {
		p.t.Fatal(err)
	}
	defer cli.Close()
	testkit.Eventually(p.t, "the private daemon answers", func() bool {
		_, err := cli.Ping(p.t.Context(), client.PingOptions{})
		return err == nil
	})
}

func (p *private) stop(signal syscall.Signal) {
	if p.cmd.Process == nil || p.cmd.ProcessState != nil {
		return
	}
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.t.Errorf("stopping the private daemon: %v", err)
	}
	_ = p.cmd.Wait()
	// Its containerd ends a moment later, and the next daemon must not mistake it for a living one.
	pid, err := os.ReadFile(filepath.Join(p.dir, "exec/containerd/containerd.pid"))
	if err == nil {
		testkit.Eventually(p.t, "the private daemon's containerd ends", func() bool {
			_, err := os.Stat("/proc/" + strings.TrimSpace(string(pid)))
			return err != nil
		})
	}
}

// unmount removes the mounts that a killed daemon left.
func (p *private) unmount() {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		p.t.Error(err)
	}
	lines := strings.Split(string(mounts), "\n")
	for _, line := range slices.Backward(lines) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], p.dir+"/") {
			if err := syscall.Unmount(fields[1], syscall.MNT_DETACH); err != nil {
				p.t.Errorf("unmounting %s: %v", fields[1], err)
			}
		}
	}
}

// load copies an image from the daemon that all tests share.
func (p *private) load(ref string) {
	p.t.Helper()
	from, err := client.New(client.FromEnv)
	if err != nil {
		p.t.Fatal(err)
	}
	defer from.Close()
	to, err := client.New(client.WithHost(p.host()))
	if err != nil {
		p.t.Fatal(err)
	}
	defer to.Close()
	saved, err := from.ImageSave(p.t.Context(), []string{ref})
	if err != nil {
		testkit.Skip(p.t, "docker", fmt.Errorf("the image %s, which .ci/run builds: %w", ref, err))
	}
	defer saved.Close()
	loaded, err := to.ImageLoad(p.t.Context(), saved)
	if err != nil {
		p.t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, loaded)
	if err := errors.Join(err, loaded.Close()); err != nil {
		p.t.Fatal(err)
	}
}

// TestDaemonRestart stops and starts the daemon under a running sandbox. The current call and all later ones soon fail
// as infrastructure, and the provider works again once the daemon is back.
func TestDaemonRestart(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"stopped": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			daemon := privateDaemon(t)
			p := provider(t, Options{Hosts: []string{daemon.host()}})
			s := start(t, p, env.Spec{Image: busybox})
			running := make(chan error, 1)
			go func() {
				_, err := s.Run(context.WithoutCancel(t.Context()), env.Command{Line: "sleep 1000"})
				running <- err
			}()
			must(t, s, "true")
			daemon.stop(signal)
			select {
			case err := <-running:
				wantGone(t, "the call under way", err)
			case <-time.After(30 * time.Second):
				t.Fatal("a call hangs after its daemon has gone")
			}
			_, err := s.Run(t.Context(), env.Command{Line: "true"})
			wantGone(t, "a later call", err)
			if _, err := p.Start(t.Context(), env.Spec{Image: busybox}); !errors.Is(err, env.ErrInfrastructure) {
				t.Errorf("Start without a daemon: %v, want env.ErrInfrastructure", err)
			} else if !strings.Contains(err.Error(), "to fix") {
				t.Errorf("the error does not say what to do: %v", err)
			}
			daemon.start()
			again := start(t, p, env.Spec{Image: busybox})
			must(t, again, "true")
			if left, err := p.Reap(t.Context(), env.ReapOptions{}); err != nil || len(left) > 0 {
				t.Errorf("Reap = %v, %v, want nothing to reap", left, err)
			}
		})
	}
}

func wantGone(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, env.ErrInfrastructure) || !errors.Is(err, guest.ErrClosed) {
		t.Errorf("%s: %v, want env.ErrInfrastructure and guest.ErrClosed", what, err)
	}
}

// TestDaemonFreezes suspends the daemon. Starts end with their context, or when the provider notices the outage.
func TestDaemonFreezes(t *testing.T) {
	t.Parallel()
	daemon := privateDaemon(t)
	p := hasty(provider(t, Options{Hosts: []string{daemon.host()}}))
	p.waits.ping = 2 * time.Second
	s := startPatiently(t, p, env.Spec{Image: busybox})
	if err := daemon.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw := sync.OnceFunc(func() {
		if err := daemon.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	})
	defer thaw()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := p.Start(ctx, env.Spec{Image: busybox}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Start on a frozen daemon: %v, want the context's error", err)
	}
	// If the caller sets no deadline, the provider's check of the daemon ends the wait.
	if _, err := p.Start(t.Context(), env.Spec{Image: busybox}); !errors.Is(err, env.ErrInfrastructure) {
		t.Errorf("Start on a frozen daemon: %v, want env.ErrInfrastructure", err)
	}
	_, err := s.Run(t.Context(), env.Command{Line: "true"})
	wantGone(t, "a call on a frozen daemon", err)
	// A start that may wait gets its sandbox when the daemon continues.
	p.waits.back = time.Minute
	time.AfterFunc(time.Second, thaw)
	again, err := p.Start(t.Context(), env.Spec{Image: busybox})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRestartUnderLoad stops and starts the daemon while sandboxes work. Every failure is one of the infrastructure,
// and a worker that tries again succeeds in the end.
func TestRestartUnderLoad(t *testing.T) {
	t.Parallel()
	daemon := privateDaemon(t)
	p := provider(t, Options{Hosts: []string{daemon.host()}})
	const workers = 6
	var working, failed, wg sync.WaitGroup // until all have worked for a while, or failed once, or ended
	working.Add(workers)
	failed.Add(workers)
	restarted := make(chan struct{})
	for i := range workers {
		wg.Go(func() {
			work, fail := sync.OnceFunc(working.Done), sync.OnceFunc(failed.Done)
			defer work()
			defer fail()
			for {
				err := loadUntil(t.Context(), p, i, restarted, work)
				if err == nil {
					return
				}
				if !errors.Is(err, env.ErrInfrastructure) {
					t.Errorf("worker %d: %v, want env.ErrInfrastructure", i, err)
					return
				}
				fail()
			}
		})
	}
	working.Wait()
	daemon.stop(syscall.SIGTERM)
	failed.Wait()
	daemon.start()
	close(restarted)
	wg.Wait()
	if t.Failed() {
		return
	}
	testkit.Eventually(t, "the sandboxes are removed", func() bool {
		return len(ours(t, p.daemons[0], p.owner)[kindSandbox]) == 0
	})
}

// loadUntil works in a sandbox until the channel is closed, and a little longer. It calls begun once it has done some
// work.
func loadUntil(ctx context.Context, p *Provider, id int, end <-chan struct{}, begun func()) (err error) {
	s, err := p.Start(ctx, env.Spec{Image: busybox, Run: "load", Rollout: fmt.Sprint(id)})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := s.Close(ctx); err == nil {
			err = closeErr
		}
	}()
	for {
		if _, err := work(ctx, s, id, 20); err != nil {
			return err
		}
		begun()
		select {
		case <-end:
			_, err = work(ctx, s, id, 20)
			return err
		default:
		}
	}
}

// TestSeveralDaemons: sandboxes are spread over two daemons. When one fails, the other is used until it is back.
func TestSeveralDaemons(t *testing.T) {
	t.Parallel()
	first, second := privateDaemon(t), privateDaemon(t)
	p := hasty(provider(t, Options{Hosts: []string{first.host(), second.host()}}))
	var sandboxes []*Sandbox
	for range 4 {
		sandboxes = append(sandboxes, start(t, p, env.Spec{Image: busybox}))
	}
	count := map[string]int{}
	for _, s := range sandboxes {
		count[s.d.host]++
	}
	if count[first.host()] != 2 || count[second.host()] != 2 {
		t.Errorf("sandboxes were spread as %v, want two on each", count)
	}
	second.stop(syscall.SIGKILL)
	for range 3 {
		s := start(t, p, env.Spec{Image: busybox})
		if s.d.host != first.host() {
			t.Errorf("a sandbox was started on %s, which is dead", s.d.host)
		}
	}
	for _, s := range sandboxes {
		_, err := s.Run(t.Context(), env.Command{Line: "true"})
		if s.d.host == first.host() && err != nil {
			t.Errorf("a sandbox of the living daemon failed: %v", err)
		}
		if s.d.host == second.host() {
			wantGone(t, "a sandbox of the dead daemon", err)
		}
	}
	second.start()
	testkit.Eventually(t, "the daemon that came back is used again", func() bool {
		return startPatiently(t, p, env.Spec{Image: busybox}).d.host == second.host()
	})
}
