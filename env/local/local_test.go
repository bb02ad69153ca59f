//go:build linux

package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/env/guest/inside"
	"deepswe/env/local"
	"deepswe/env/sandboxtest"
	"deepswe/env/testkit"
)

func newHost(t *testing.T) env.Provider {
	t.Helper()
	p, err := local.NewHost(local.Options{Scratch: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// newBwrap skips the test where bubblewrap does not work, unless the environment requires it.
func newBwrap(t *testing.T) env.Provider {
	t.Helper()
	p, err := local.NewBwrap(local.Options{Scratch: t.TempDir()})
	if err != nil {
		testkit.Skip(t, "bwrap", err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestHost(t *testing.T) {
	t.Parallel()
	sandboxtest.Run(t, newHost, sandboxtest.Options{})
}

func TestBwrap(t *testing.T) {
	t.Parallel()
	sandboxtest.Run(t, newBwrap, sandboxtest.Options{Attacker: os.Getenv("DEEPSWE_TEST_ATTACKER")})
}

// TestBwrapAsUser repeats TestBwrap's tests of isolation, limits and lifecycle without root's rights, where other
// mechanisms apply. In CI, an ordinary user runs all of TestBwrap.
func TestBwrapAsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("TestBwrap does this already")
	}
	if testing.Short() {
		t.Skip("runs the suite once more")
	}
	t.Parallel()
	newBwrap(t)
	const user = 54321
	dir, err := os.MkdirTemp("", "deepswe-user-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, d := range []string{dir, filepath.Join(dir, "home")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(dir, "home")
	if err := os.Chown(home, user, user); err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(dir, "self.test")
	copyProgram(t, os.Args[0], self)
	attacker := filepath.Join(dir, "attack")
	copyProgram(t, sandboxtest.Attacker(t), attacker)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestBwrap$/^(Isolation|Limits|Lifecycle)$", "-test.v="+verbose())
	cmd.Dir = home
	cmd.Env = []string{
		"HOME=" + home, "TMPDIR=" + home, "PATH=" + os.Getenv("PATH"),
		"DEEPSWE_TEST_ATTACKER=" + attacker,
		"DEEPSWE_TEST_REQUIRE=" + os.Getenv("DEEPSWE_TEST_REQUIRE"),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "do not work here") && !testkit.Required("bwrap") {
		t.Skipf("%s", out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
}

func verbose() string {
	if testing.Verbose() {
		return "true"
	}
	return "false"
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
}

// TestBwrapPlaces: the repository is where the Spec says, and never over a directory of the host.
func TestBwrapPlaces(t *testing.T) {
	p := newBwrap(t)
	for _, dir := range []string{"", "/testbed", "/home/me/work/project", "/tmp/project", "/srv/a b"} {
		sb, err := p.Start(t.Context(), env.Spec{Dir: dir})
		if err != nil {
			t.Errorf("%q: %v", dir, err)
			continue
		}
		want := dir
		if want == "" {
			want = "/testbed"
		}
		r, err := sb.Run(t.Context(), env.Command{Line: "pwd && touch x && test -O ."})
		if err != nil || r.ExitCode != 0 || string(r.Stdout.Head) != want+"\n" || sb.Dir() != want {
			t.Errorf("%q: %+v, %v: %s%s", dir, r, err, r.Stdout.Head, r.Stderr.Head)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{"/", "/usr", "/usr/src/app", "/etc/x", "/proc", "/tmp/home", "/run/deepswe", "relative"} {
		if sb, err := p.Start(t.Context(), env.Spec{Dir: dir}); !errors.Is(err, env.ErrUnsupported) {
			t.Errorf("%q: %v", dir, err)
			if err == nil {
				sb.Close(t.Context())
			}
		}
	}
}

// TestBwrapTools: the host's tools work inside, without a network and without the user's home.
func TestBwrapTools(t *testing.T) {
	p := newBwrap(t)
	sb, err := p.Start(t.Context(), env.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close(context.Background()) })
	for tool, line := range map[string]string{
		"bash": "bash -c 'echo ok'",
		"git": "git init -q r && cd r && git -c user.name=a -c user.email=b commit -q --allow-empty -m x && " +
			"git log >/dev/null && echo ok",
		"python3": "python3 -c 'import socket, ssl, sqlite3, subprocess; print(\"ok\")'",
		"node":    "node -e 'console.log(\"ok\")'",
		"gcc":     "printf 'int main(void) { return 0; }' >a.c && gcc a.c -o a && ./a && echo ok",
		"go": "mkdir m && cd m && go mod init m 2>/dev/null; printf 'package m\\nimport \"testing\"\\n" +
			"func TestM(t *testing.T) {}\\n' >m_test.go && go test . >out && echo ok || cat out",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			continue
		}
		r, err := sb.Run(t.Context(), env.Command{Line: line, Timeout: 2 * time.Minute})
		if err != nil || r.ExitCode != 0 || string(r.Stdout.Head) != "ok\n" {
			t.Errorf("%s: exit code %d, %v: %s%s", tool, r.ExitCode, err, r.Stdout.Head, r.Stderr.Head)
		}
	}
}

// TestBwrapOwnCaches: a sandbox with caches of its own does not show the machine's, which may contain the project.
func TestBwrapOwnCaches(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("CARGO_HOME", filepath.Join(home, ".cargo"))
	crate := filepath.Join(home, ".cargo/registry/src/half-1/lib.rs")
	testkit.WriteFile(t, crate, "")
	p := newBwrap(t)
	for want, own := range map[string][]string{"shown\n": nil, "hidden\n": {"CARGO_HOME=/tmp/own"}} {
		sb, err := p.Start(t.Context(), env.Spec{Env: own})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sb.Close(context.Background()) })
		if got := said(t, sb, "test -e "+crate+" && echo shown || echo hidden"); got != want {
			t.Errorf("with %q, the crate is %q, want %q", own, got, want)
		}
	}
}

// TestBwrapHides: a folder of the machine, or of one that is shown, is empty if the spec says so.
func TestBwrapHides(t *testing.T) {
	dir, path := t.TempDir(), "/opt/tool"
	testkit.WriteFile(t, filepath.Join(dir, "lib", "copy"), "")
	testkit.WriteFile(t, filepath.Join(dir, "other", "f"), "")
	sb, err := newBwrap(t).Start(t.Context(), env.Spec{
		Shown: []env.Shown{{Host: dir, Path: path}, {Path: path + "/lib"}, {Path: "/usr/share/doc"}, {Path: "/srv", Writable: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close(context.Background()) })
	if got := said(t, sb, "mkdir /srv/made && ls /srv"); got != "made\n" {
		t.Errorf("nothing can be written where it should be: %q", got)
	}
	line := "ls -A " + path + "/lib /usr/share/doc; ls " + path + "/other; touch " + path + "/lib/x 2>/dev/null || echo read-only"
	if got, want := said(t, sb, line), path+"/lib:\n\n/usr/share/doc:\nf\nread-only\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestBwrapLinkedTools: a program in PATH that is a link finds the files it was installed with, through all links on
// the way. Nothing else of the home is shown.
func TestBwrapLinkedTools(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("PATH", filepath.Join(home, ".local/bin")+":"+os.Getenv("PATH"))
	share := filepath.Join(home, ".local/share/tool")
	testkit.WriteFile(t, filepath.Join(share, "venv-2/pyvenv.cfg"), "")
	testkit.WriteFile(t, filepath.Join(share, "venv-2/lib/message"), "ok\n")
	testkit.WriteFile(t, filepath.Join(share, "venv-2/bin/tool"), "#!/bin/sh\ncat "+share+"/venv/lib/message\n")
	testkit.WriteFile(t, filepath.Join(home, "work/.env"), "")
	testkit.WriteFile(t, filepath.Join(home, ".local/bin/x"), "")
	if err := errors.Join(
		os.Chmod(filepath.Join(share, "venv-2/bin/tool"), 0o755), os.Symlink("venv-2", filepath.Join(share, "venv")),
		os.Symlink("../share/tool/venv/bin/tool", filepath.Join(home, ".local/bin/tool")),
	); err != nil {
		t.Fatal(err)
	}
	sb, err := newBwrap(t).Start(t.Context(), env.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close(context.Background()) })
	if got := said(t, sb, "tool; test -e "+home+"/work || echo hidden"); got != "ok\nhidden\n" {
		t.Errorf("%q", got)
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		os.Exit(inside.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	if f := strings.Split(os.Getenv(victimEnv), ":"); len(f) == 4 {
		fmt.Fprintln(os.Stderr, victim{kind: f[0], scratch: f[1], source: f[2], mark: f[3]}.run())
		os.Exit(1)
	}
	testkit.Parallel(8)
	testkit.Main(m)
}

// If a preparation command fails, the error names it and has its output.
func TestPrepareFails(t *testing.T) {
	t.Parallel()
	_, err := newHost(t).Start(t.Context(), env.Spec{Run: "prepare", Prepare: []string{"true", "echo no such tool >&2; exit 7"}})
	failed, ok := errors.AsType[*env.PrepareError](err)
	if !ok || failed.Step != 2 || failed.Result.ExitCode != 7 || !strings.Contains(err.Error(), "no such tool") {
		t.Errorf("%v", err)
	}
}
