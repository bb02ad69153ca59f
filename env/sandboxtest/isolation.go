package sandboxtest

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/testkit"
)

// Each case attacks one guarantee from inside. It is skipped if the provider does not give the guarantee.
func isolationCases() []testCase {
	return []testCase{
		{"NoPrivileges", testNoPrivileges},
		{"NoHostEnvironment", testNoHostEnvironment},
		{"NoHostFiles", testNoHostFiles},
		{"NoNetwork", testNoNetwork},
		{"NoNamespaces", testNoNamespaces},
		{"GuestLives", testGuestLives},
		{"GuestIsSealed", testGuestIsSealed},
		{"GuestUnderAttack", testGuestUnderAttack},
		{"GuestMemory", testGuestMemory},
		{"OtherUser", testOtherUser},
		{"Processes", testProcesses},
		{"Memory", testMemory},
		{"Processor", testProcessor},
	}
}

func testNoPrivileges(t *testing.T, s *suite) {
	b := s.sandbox(t)
	status := b.sh("cat /proc/self/status")
	for _, field := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if !strings.Contains(status, field+":\t0000000000000000\n") {
			t.Errorf("a command has %s", line(status, field))
		}
	}
	if !strings.Contains(status, "NoNewPrivs:\t1\n") {
		t.Errorf("a command has %s", line(status, "NoNewPrivs"))
	}
	const find = "find /usr/bin /bin -maxdepth 1 -name su -o -maxdepth 1 -name sudo -o -maxdepth 1 -name mount " +
		"2>/dev/null; true"
	if out := b.sh(find); out != "" {
		const line = "su root -c 'touch owned' </dev/null; sudo -n touch owned; mount -t tmpfs none . && touch owned"
		b.run(env.Command{Line: line, Timeout: 10 * time.Second})
		if b.separate() && b.run(env.Command{Line: "test -e owned"}).ExitCode == 0 {
			t.Error("a set-user-ID program granted root")
		}
	}
}

func line(text, prefix string) string {
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, prefix) {
			return strings.TrimSpace(l)
		}
	}
	return "no " + prefix
}

func testNoHostEnvironment(t *testing.T, s *suite) {
	b := s.sandbox(t)
	value := os.Getenv(secret)
	out := b.sh("env; cat /proc/$PPID/environ 2>/dev/null; cat /proc/self/environ; true")
	if strings.Contains(out, secret) || strings.Contains(out, value) {
		t.Error("the host's environment is visible in a command's environment")
	}
	if s.can.Isolated {
		if out := b.sh("cat /proc/[0-9]*/environ 2>/dev/null; true"); strings.Contains(out, value) {
			t.Error("the host's environment is readable in /proc")
		}
	}
}

func testNoHostFiles(t *testing.T, s *suite) {
	needs(t, s.can.Isolated, "isolation from the host's files")
	b := s.sandbox(t)
	dir := t.TempDir()
	path := testkit.WriteFile(t, filepath.Join(dir, "host-secret"), "host secret")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"", "/proc/1/root", "/proc/self/root", "/proc/1/cwd/..", "/.."} {
		try := prefix + path
		if data, _, err := b.Read(t.Context(), try, env.ReadOptions{}); err == nil {
			t.Errorf("read %s: %q", try, data)
		}
		if r := b.run(env.Command{Line: "cat '" + try + "'"}); r.ExitCode == 0 {
			t.Errorf("cat %s: %q", try, text(r.Stdout))
		}
	}
	home := cmp.Or(os.Getenv("HOME"), "/root")
	for _, name := range []string{".ssh", ".gitconfig", ".npmrc", ".netrc", ".docker", ".aws", ".config",
		".bash_history", ".cargo/credentials.toml"} {
		if b.run(env.Command{Line: "ls -d '" + filepath.Join(home, name) + "'"}).ExitCode == 0 {
			t.Errorf("%s of the host's user is visible", name)
		}
	}
	for _, socket := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock",
		"/run/dbus/system_bus_socket"} {
		if b.run(env.Command{Line: "ls " + socket}).ExitCode == 0 {
			t.Errorf("%s is inside", socket)
		}
	}
	for _, device := range []string{"/dev/kvm", "/dev/mem", "/dev/sda", "/dev/vda", "/dev/fuse", "/dev/net/tun",
		"/proc/kcore"} {
		if b.run(env.Command{Line: "head -c 1 " + device + " && : <>" + device, Timeout: 5 * time.Second}).ExitCode == 0 {
			t.Errorf("%s can be opened", device)
		}
	}
	// What is visible of the host is read-only.
	for _, line := range []string{
		"echo x > /usr/owned", "echo x > /bin/owned", "echo x > /etc/passwd", "echo x > /etc/owned", "mkdir /sys/owned",
		"mkdir /sys/fs/cgroup/memory/owned", "echo 1 > /proc/sys/kernel/panic", "echo b > /proc/sysrq-trigger",
	} {
		if r := b.run(env.Command{Line: line}); r.ExitCode == 0 && b.separate() {
			t.Errorf("%s: done", line)
		}
	}
}

func testNoNetwork(t *testing.T, s *suite) {
	needs(t, s.can.NetworkOff, "no network")
	b := s.sandbox(t)
	for l := range strings.Lines(b.sh("tail -n +3 /proc/net/dev")) {
		name, counts, _ := strings.Cut(strings.TrimSpace(l), ":")
		if name == "lo" || strings.Trim(strings.Join(strings.Fields(counts), ""), "0") == "" {
			continue // a tunnel that the kernel creates in every namespace: down and unused
		}
		t.Errorf("unexpected interface %s", name)
	}
	if routes := b.sh("tail -n +2 /proc/net/route"); strings.TrimSpace(routes) != "" {
		t.Errorf("there are routes: %s", routes)
	}
	s.attack(b)
	if out := b.sh("./attack network; true"); strings.Contains(out, "open") {
		t.Errorf("%s", out)
	}
	if out := b.sh("./attack families; true"); s.can.Isolated && out != "" {
		t.Errorf("%s", out)
	}
	// The loopback device works, because test suites need it.
	if out := b.sh("./attack loopback"); out != "ok\n" {
		t.Errorf("loopback: %s", out)
	}
}

func testNoNamespaces(t *testing.T, s *suite) {
	needs(t, s.can.Isolated, "isolation from the host's files")
	b := s.sandbox(t)
	s.attack(b)
	if out := b.sh("./attack userns; true"); out != "refused\n" {
		t.Errorf("a new user namespace: %s", out)
	}
}

// testGuestLives sends every signal from commands, several at once.
func testGuestLives(t *testing.T, s *suite) {
	needs(t, s.can.Isolated, "protection of the guest")
	b := s.sandbox(t)
	b.run(env.Command{Line: `i=1; while [ $i -le 64 ]; do kill -$i 1; kill -$i $PPID; i=$((i+1)); done 2>/dev/null`})
	b.run(env.Command{Line: `for t in /proc/1/task/*; do
		i=1; while [ $i -le 64 ]; do kill -$i ${t##*/}; i=$((i+1)); done
	done 2>/dev/null`})
	b.run(env.Command{Line: "kill -9 -1", Timeout: 10 * time.Second})
	b.run(env.Command{Line: "kill -STOP 1; kill -STOP -1", Timeout: time.Second, Grace: 100 * time.Millisecond})
	b.alive()
}

func testGuestIsSealed(t *testing.T, s *suite) {
	needs(t, s.can.Isolated, "protection of the guest")
	b := s.sandbox(t)
	for _, file := range []string{"mem", "environ", "maps", "syscall", "stack", "auxv", "io", "fd/0", "fd/1", "exe",
		"root/etc/passwd", "cwd/x", "map_files"} {
		path := "/proc/1/" + file
		for _, line := range []string{"cat " + path + " 2>/dev/null | head -c 1 | grep -q .", "echo x > " + path} {
			if r := b.run(env.Command{Line: line, Timeout: 5 * time.Second}); r.ExitCode == 0 {
				t.Errorf("%s: done", line)
			}
		}
		if data, _, err := b.Read(t.Context(), path, env.ReadOptions{Limit: 10}); err == nil {
			t.Errorf("the editor can read %s: %q", path, data)
		}
		if err := b.put(path, "x", env.WriteOptions{}); err == nil {
			t.Errorf("the editor can write %s", path)
		}
	}
	if _, _, err := b.Read(t.Context(), "/proc/self/environ", env.ReadOptions{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("the editor can read the guest's files in /proc: %v", err)
	}
	program := strings.TrimRight(b.sh("tr '\\0' '\\n' </proc/1/cmdline | head -1"), "\n")
	for _, line := range []string{"echo x >> " + program, "mv " + program + " " + program + "2 || rm " + program} {
		if b.run(env.Command{Line: line}).ExitCode == 0 {
			t.Errorf("the guest's program could be changed: %s", line)
		}
	}
	for _, l := range []string{"echo 1000 > /proc/1/oom_score_adj", "renice 19 -p 1", "echo 0 > /proc/1/loginuid"} {
		if r := b.run(env.Command{Line: l}); r.ExitCode == 0 && b.separate() {
			t.Errorf("%s: done", l)
		}
	}
}

// testGuestUnderAttack makes system calls that a shell cannot make.
func testGuestUnderAttack(t *testing.T, s *suite) {
	needs(t, s.can.Isolated, "protection of the guest")
	b := s.sandbox(t)
	s.attack(b)
	for _, way := range []string{"ptrace", "memory", "limits", "signals", "async", "descriptors"} {
		r := b.run(env.Command{Line: "./attack " + way, Timeout: 20 * time.Second})
		if out := text(r.Stdout); strings.Contains(out, "done") || r.ExitCode != 0 {
			t.Errorf("%s: %s%s", way, out, text(r.Stderr))
		}
		b.alive()
	}
}

// testGuestMemory fills file systems in memory, which share the sandbox's memory limit with the guest.
func testGuestMemory(t *testing.T, s *suite) {
	needs(t, s.can.MemoryLimit && s.can.Isolated, "a limit on memory, and file systems of its own")
	b := own(t, s.start(t, func(spec *env.Spec) { spec.Limits.Memory = 128 << 20 }))
	for _, dir := range []string{"/tmp", "/dev/shm", "/dev", "/run", "/var/tmp", "/"} {
		if strings.TrimSpace(b.sh("stat -f -c %T "+dir+" 2>/dev/null; true")) != "tmpfs" {
			continue // on a disk, so it uses no memory
		}
		b.run(env.Command{Line: "head -c 500000000 /dev/zero > " + dir + "/fill", Timeout: time.Minute})
		b.ping()
	}
	b.run(env.Command{Line: "rm -f /tmp/fill /dev/shm/fill /dev/fill /run/fill /var/tmp/fill /fill"})
	if b.sh("echo ok") != "ok\n" {
		t.Error("commands cannot be run any more")
	}
}

// user returns the ID of the user that a process runs as.
func (b *bench) user(pid string) string {
	b.t.Helper()
	f := strings.Fields(line(b.sh("cat /proc/"+pid+"/status"), "Uid:"))
	if len(f) < 2 {
		b.t.Fatalf("the user of process %s: %v", pid, f)
	}
	return f[1]
}

// separate reports whether commands run as another user than the guest in this sandbox; not every image allows it.
func (b *bench) separate() bool {
	b.t.Helper()
	return b.user("$PPID") != b.user("self")
}

func testOtherUser(t *testing.T, s *suite) {
	needs(t, s.can.SeparateUser, "a separate user for commands")
	b := s.sandbox(t)
	if !b.separate() {
		t.Skip("this image does not allow it")
	}
	if user := b.user("self"); user == "0" {
		t.Errorf("commands are user %s", user)
	}
	if groups := strings.Fields(line(b.sh("cat /proc/self/status"), "Groups:")); len(groups) > 1 {
		t.Errorf("a command is in the groups %v", groups[1:])
	}
	b.sh(`touch "$HOME/x" && rm "$HOME/x" && echo x > /dev/stdout && echo x > /dev/stderr`)
}

func testProcesses(t *testing.T, s *suite) {
	needs(t, s.can.ProcessLimit, "a limit on processes")
	b := own(t, s.start(t, func(spec *env.Spec) { spec.Limits.Processes = 100 }))
	s.attack(b)
	if out := b.sh("./attack fork 300"); !strings.HasPrefix(out, "refused after ") {
		t.Errorf("with a limit of 100 processes: %s", out)
	}
}

func testMemory(t *testing.T, s *suite) {
	needs(t, s.can.MemoryLimit, "a limit on memory")
	b := own(t, s.start(t, func(spec *env.Spec) { spec.Limits.Memory = 192 << 20 }))
	s.attack(b)
	if r := b.run(env.Command{Line: "./attack allocate 64"}); r.ExitCode != 0 || text(r.Stdout) != "allocated\n" {
		t.Errorf("64 of 192 MiB: %+v, %s", r, text(r.Stderr))
	}
	r, err := b.Run(t.Context(), env.Command{Line: "./attack allocate 400", Dir: b.dir})
	if !s.endedTogether(err) && (err != nil || r.ExitCode == 0 || !r.OutOfMemory) {
		t.Errorf("400 of 192 MiB: exit code %d, out of memory %v, %s, %v", r.ExitCode, r.OutOfMemory, text(r.Stderr), err)
	}
}

func testProcessor(t *testing.T, s *suite) {
	needs(t, s.can.CPULimit, "a limit on processor time")
	b := own(t, s.start(t, func(spec *env.Spec) { spec.Limits.CPUs = 0.2 }))
	s.attack(b)
	// Both times are measured inside; a busy machine can only lower their ratio.
	if out := b.sh("./attack spin"); !strings.HasPrefix(out, "share ") ||
		strings.TrimSpace(strings.TrimPrefix(out, "share ")) > "0.40" {
		t.Errorf("with a limit of 0.2 CPUs: %s", out)
	}
}
