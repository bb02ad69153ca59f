package docker

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"deepswe/env"
)

// TestIsolation tries to break out of both kinds of sandboxes: one with the image's repository, where commands run as
// root without capabilities, and one with a copied repository, where they run as another user.
func TestIsolation(t *testing.T) {
	t.Setenv("DEEPSWE_TEST_SECRET", "hunter2")
	p := provider(t, Options{})
	repository := t.TempDir()
	if err := os.WriteFile(filepath.Join(repository, "file"), []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	limits := env.Limits{Memory: 256 << 20, CPUs: 0.5, Processes: 64}
	for _, c := range []struct {
		name string
		spec env.Spec
		uid  string
	}{
		{"image", env.Spec{Image: bookworm, Limits: limits}, "0"},
		{"copied in", env.Spec{Image: bookworm, Limits: limits, CopyIn: repository}, "1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, p, c.spec)
			if uid := strings.TrimSpace(must(t, s, "id -u")); uid != c.uid {
				t.Errorf("commands run as user %s, want %s", uid, c.uid)
			}
			t.Run("refused", func(t *testing.T) { testRefused(t, s) })
			t.Run("status", func(t *testing.T) { testStatus(t, s) })
			t.Run("surroundings", func(t *testing.T) { testSurroundings(t, s) })
			t.Run("guest", func(t *testing.T) { testGuestUntouchable(t, s) })
			t.Run("limits", func(t *testing.T) { testLimits(t, s) })
			if err := s.Ping(t.Context()); err != nil {
				t.Errorf("the sandbox did not survive: %v", err)
			}
		})
	}
}

// testRefused tries ways out of the sandbox, and ways to more rights.
func testRefused(t *testing.T, s *Sandbox) {
	for name, line := range map[string]string{
		"mount":                 "mount -t tmpfs none /mnt",
		"bind mount":            "mount --bind /etc /mnt",
		"remount the guest":     "mount -o remount,rw " + guestDir,
		"unmount the guest":     "umount -l " + guestDir,
		"user namespace":        "unshare -Ur true",
		"mount namespace":       "unshare -m true",
		"network namespace":     "unshare -n true",
		"init's namespaces":     "nsenter -t 1 -m true",
		"chroot":                "chroot / true",
		"block device":          "mknod /tmp/disk b 254 0",
		"character device":      "mknod /tmp/mem c 1 1",
		"another user":          "setpriv --reuid 33 --clear-groups true",
		"su":                    "su nobody -s /bin/sh -c true",
		"a file's owner":        "touch /tmp/f && chown 33 /tmp/f",
		"kernel settings":       "echo 1 > /proc/sys/kernel/panic",
		"sysrq":                 "echo h > /proc/sysrq-trigger",
		"host name":             "hostname elsewhere",
		"clock":                 "date -s 2001-01-01",
		"kernel log":            "dmesg",
		"cgroup":                "echo 1073741824 > /sys/fs/cgroup/memory/memory.limit_in_bytes",
		"new cgroup":            "mkdir /sys/fs/cgroup/memory/x || mkdir /sys/fs/cgroup/x",
		"raw socket":            "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
		"outside by address":    "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 2)'",
		"outside by name":       "python3 -c 'import socket; socket.getaddrinfo(\"example.com\", 80)'",
		"cloud metadata":        "python3 -c 'import socket; socket.create_connection((\"169.254.169.254\", 80), 2)'",
		"the docker bridge":     "python3 -c 'import socket; socket.create_connection((\"172.17.0.1\", 22), 2)'",
		"docker socket":         "ls /var/run/docker.sock /run/docker.sock",
		"lower the OOM score":   "echo -1000 > /proc/self/oom_score_adj",
		"raise a limit":         "bash -c 'ulimit -c unlimited'",
		"real-time scheduling":  "chrt -f 1 true",
		"load a module":         "modprobe dummy",
		"keep the core pattern": "echo '|/tmp/x' > /proc/sys/kernel/core_pattern",
	} {
		t.Run(name, func(t *testing.T) {
			if out, code := run(t, s, line); code == 0 {
				t.Errorf("%s worked: %s", line, out)
			}
		})
	}
}

// testStatus checks what the kernel says about a command's rights.
func testStatus(t *testing.T, s *Sandbox) {
	status := map[string]string{}
	for line := range strings.Lines(must(t, s, "cat /proc/self/status")) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	for key, want := range map[string]string{
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
	} {
		if status[key] != want {
			t.Errorf("%s is %s, want %s", key, status[key], want)
		}
	}
	// A program with the set-user-ID bit gains nothing.
	out := must(t, s, "cp /usr/bin/id /tmp/suid && chmod 4755 /tmp/suid && grep Cap /proc/self/status | cut -f2 | sort -u && /tmp/suid -u")
	if !strings.HasPrefix(out, "0000000000000000\n") {
		t.Errorf("capabilities: %s", out)
	}
}

// testSurroundings looks for traces of the host.
func testSurroundings(t *testing.T, s *Sandbox) {
	if out := must(t, s, "env; cat /proc/*/environ 2>/dev/null || true"); strings.Contains(out, "hunter2") ||
		strings.Contains(out, "DEEPSWE") {
		t.Errorf("the host's environment is visible:\n%s", out)
	}
	if out := must(t, s, "ls /sys/class/net"); out != "lo\n" {
		t.Errorf("network interfaces: %s", out)
	}
	// Docker mounts three files of its own into each container. Nothing else may come from the host's disk.
	for line := range strings.Lines(must(t, s, "cat /proc/self/mountinfo")) {
		fields := strings.Fields(line)
		switch at := fields[4]; {
		case at == "/etc/hosts", at == "/etc/hostname", at == "/etc/resolv.conf":
		case at == guestDir:
			if !strings.HasPrefix(fields[5], "ro") {
				t.Errorf("the guest is mounted writable: %s", line)
			}
		case strings.Contains(line, " - ext4 "), strings.Contains(line, " - xfs "), strings.Contains(line, " - btrfs "):
			t.Errorf("a directory of the host: %s", line)
		}
	}
	if out := must(t, s, "ps -e -o comm="); strings.Contains(out, "dockerd") {
		t.Errorf("the host's processes can be seen:\n%s", out)
	}
	if cwd, err := os.Getwd(); err == nil {
		if out, code := run(t, s, "ls "+cwd); code == 0 {
			t.Errorf("the host's %s can be seen: %s", cwd, out)
		}
	}
}

// testGuestUntouchable attacks the guest: its binary, its process, and its stream to the host.
func testGuestUntouchable(t *testing.T, s *Sandbox) {
	for name, line := range map[string]string{
		"write over it":     "echo x > " + guestPath,
		"remove it":         "rm -f " + guestPath,
		"replace it":        "cp /bin/true " + guestPath,
		"rename its folder": "mv " + guestDir + " /elsewhere",
		"read its memory":   "cat /proc/1/mem",
		"read its maps":     "test -n \"$(cat /proc/1/maps)\"",
		"its environment":   "test -n \"$(cat /proc/1/environ)\"",
		"its stream":        "ls -l /proc/1/fd/1",
		"forge an answer":   "echo forged > /proc/1/fd/1",
		"steal a request":   "timeout 2 head -c1 /proc/1/fd/0",
		"its root":          "ls /proc/1/root/",
		"trace it":          `python3 -c 'import ctypes,sys; sys.exit(0 if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0 else 1)'`,
		"take its stdin":    `python3 -c 'import ctypes,sys; sys.exit(0 if ctypes.CDLL(None).syscall(438, ctypes.CDLL(None).syscall(434, 1, 0), 0, 0) >= 0 else 1)'`,
		"write its memory":  `python3 -c 'open("/proc/1/mem", "r+b", 0)'`,
		"limit it":          "prlimit --pid 1 --nofile=1:1",
	} {
		t.Run(name, func(t *testing.T) {
			if out, code := run(t, s, line); code == 0 {
				t.Errorf("%s worked: %s", line, out)
			}
		})
	}
	for signal := 1; signal <= 64; signal++ {
		run(t, s, "kill -"+strconv.Itoa(signal)+" 1 2>/dev/null")
		if err := s.Ping(t.Context()); err != nil {
			t.Fatalf("signal %d ended the guest: %v", signal, err)
		}
	}
	run(t, s, "kill -STOP 1; kill -9 -1")
	if err := s.Ping(t.Context()); err != nil {
		t.Fatalf("kill -9 -1 ended the guest: %v", err)
	}
}

// testLimits exceeds the limits on CPU time, memory and processes.
func testLimits(t *testing.T, s *Sandbox) {
	quota := "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max"
	if out := must(t, s, quota); out != "50000\n" {
		t.Errorf("CPU quota is %s, want 50000", out)
	}
	r, err := s.Run(t.Context(), env.Command{Line: "python3 -c 'x = bytearray(1 << 30)'; echo $?", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if out := string(r.Stdout.Head); strings.HasPrefix(out, "0") {
		t.Errorf("a gigabyte was allocated under a limit of 256 MiB")
	}
	if !r.OutOfMemory {
		t.Errorf("being killed for memory was not reported: %+v", r)
	}
	r, err = s.Run(t.Context(), env.Command{Line: ":(){ :|:& };:; sleep 1; true", Timeout: 20 * time.Second})
	if err != nil {
		t.Fatalf("a fork bomb broke the sandbox: %v", err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Fatalf("a fork bomb broke the sandbox: %v", err)
	}
	t.Logf("fork bomb: exit code %d, %d processes left, %s", r.ExitCode, r.Background,
		r.Stderr.Head[:min(120, len(r.Stderr.Head))])
	run(t, s, "kill -9 -1")
}
