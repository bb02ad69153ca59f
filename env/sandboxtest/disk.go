package sandboxtest

import (
	"strings"
	"testing"
	"time"

	"deepswe/env"
)

// Each case fills the disk in a different way. How much is written until the commands are killed depends on how
// busy the machine is, and is not checked here.
func diskCases() []testCase {
	return []testCase{
		{"OneFile", testDiskOneFile},
		{"ManyFiles", testDiskManyFiles},
		{"ManyDirectories", testDiskManyDirectories},
		{"Temporary", testDiskTemporary},
		{"Unlinked", testDiskUnlinked},
		{"Hidden", testDiskHidden},
		{"Background", testDiskBackground},
		{"Reserved", testDiskReserved},
		{"HonestWork", testDiskHonestWork},
	}
}

// small returns the group's sandbox, which has a low disk limit. Cases remove what they have written. Commands that
// fill a file system in memory, as /tmp is on many machines, may hit the memory limit instead.
func (s *suite) small(t *testing.T) *bench {
	t.Helper()
	needs(t, s.can.DiskLimit, "a limit on the disk")
	return s.sandbox(t, func(spec *env.Spec) {
		spec.Limits.Disk, spec.Limits.Files, spec.Limits.Memory = 64<<20, 2000, 1<<30
	})
}

// fill runs a command that fills the disk until it is killed.
func (b *bench) fill(line string) {
	b.t.Helper()
	r := b.run(env.Command{Line: line, Timeout: 2 * time.Minute, Grace: 100 * time.Millisecond})
	if !r.OutOfDisk || r.TimedOut || r.ExitCode == 0 {
		b.t.Errorf("%s: out of disk %v, timed out %v, exit code %d, %s", line, r.OutOfDisk, r.TimedOut, r.ExitCode,
			text(r.Stderr))
	}
	if said := text(r.Stderr); !strings.Contains(said, "more than its limit") {
		b.t.Errorf("%s: stderr does not explain it: %s", line, said)
	}
}

// usable checks that a sandbox works again once the files are removed.
func (b *bench) usable(remove string) {
	b.t.Helper()
	b.alive()
	for _, line := range []string{remove, "head -c 5000000 /dev/zero > some && rm some && echo ok"} {
		if r := b.run(env.Command{Line: line, Timeout: time.Minute}); r.ExitCode != 0 || r.OutOfDisk {
			b.t.Errorf("afterwards: %s: exit code %d, out of disk %v, %s", line, r.ExitCode, r.OutOfDisk, text(r.Stderr))
		}
	}
}

func testDiskOneFile(t *testing.T, s *suite) {
	b := s.small(t)
	b.fill("cat /dev/zero > big")
	b.fill("cat /dev/zero > bigger") // while the first file still exists
	b.usable("rm big bigger")
	b.fill("cat /dev/zero > big")
	b.usable("rm big")
}

func testDiskManyFiles(t *testing.T, s *suite) {
	b := s.small(t)
	b.fill("i=0; while :; do : > file$i; i=$((i+1)); done")
	b.usable("rm -f file*")
}

func testDiskManyDirectories(t *testing.T, s *suite) {
	needs(t, s.can.DiskLimit, "a limit on the disk")
	b := own(t, s.start(t, func(spec *env.Spec) {
		// Without control groups, memory is limited per process, including the guest. A guest that is built with cgo, as
		// tests are, takes 8 MiB for each of its threads.
		spec.Limits.Disk, spec.Limits.Files, spec.Limits.Memory = 64<<20, 2000, 1<<30
	}))
	s.attack(b)
	b.fill("./attack nest")
}

func testDiskTemporary(t *testing.T, s *suite) {
	needs(t, s.can.Isolated, "a /tmp of its own")
	b := s.small(t)
	r := b.run(env.Command{Line: "cat /dev/zero > /tmp/big", Timeout: 2 * time.Minute})
	if r.TimedOut || r.ExitCode == 0 {
		t.Errorf("/tmp: timed out %v, exit code %d, out of disk %v", r.TimedOut, r.ExitCode, r.OutOfDisk)
	}
	b.usable("rm /tmp/big")
	b.fill("mkdir /tmp/many; i=0; while :; do : > /tmp/many/$i; i=$((i+1)); done")
	b.usable("rm -rf /tmp/many")
}

func testDiskUnlinked(t *testing.T, s *suite) {
	b := s.small(t)
	b.fill("exec 3> gone; rm gone; cat /dev/zero >&3")
	b.usable("true")
}

func testDiskHidden(t *testing.T, s *suite) {
	b := s.small(t)
	b.fill("mkdir closed; exec 3> closed/big; chmod 0 closed; cat /dev/zero >&3")
	if mode := b.sh("ls -ld closed"); !strings.HasPrefix(mode, "d---------") {
		t.Errorf("the directory's mode was not restored: %s", mode)
	}
	b.usable("chmod 700 closed; rm -r closed")
}

// testDiskBackground checks that a background process that fills the disk is killed, and reported by the next
// command.
func testDiskBackground(t *testing.T, s *suite) {
	b := s.small(t)
	b.run(env.Command{Line: "(while [ ! -e go ]; do sleep 0.05; done; cat /dev/zero > big) >/dev/null 2>&1 &"})
	b.fill(": > go; sleep 600")
	b.usable("rm big")
}

// testDiskReserved checks that a command cannot reserve the disk in a single call, before the watch can notice.
func testDiskReserved(t *testing.T, s *suite) {
	needs(t, s.can.Isolated && s.can.DiskLimit, "isolation, and a limit on the disk")
	b := s.small(t)
	s.attack(b)
	r := b.run(env.Command{Line: "./attack reserve", Timeout: time.Minute})
	if out := text(r.Stdout); strings.Contains(out, "done") || r.ExitCode != 0 {
		t.Errorf("%s%s", out, text(r.Stderr))
	}
	b.alive()
}

// testDiskHonestWork checks that neither removed files nor files that existed before count towards the limit.
func testDiskHonestWork(t *testing.T, s *suite) {
	b := s.small(t)
	const line = `i=0; while [ $i -lt 12 ]; do head -c 20000000 /dev/zero > object; cp object other; rm object other
		i=$((i+1)); done; truncate -s 1T sparse 2>/dev/null || dd if=/dev/zero of=sparse bs=1 count=0 seek=1G 2>/dev/null
		echo ok`
	if r := b.run(env.Command{Line: line, Timeout: time.Minute}); text(r.Stdout) != "ok\n" || r.OutOfDisk {
		t.Errorf("480 MB written and removed: out of disk %v, exit code %d, %s", r.OutOfDisk, r.ExitCode, text(r.Stderr))
	}
}
