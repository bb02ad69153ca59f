//go:build linux

package local

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"deepswe/env"
)

func TestParseMounts(t *testing.T) {
	got := parseMounts([]byte(`24 30 0:22 / /sys rw,nosuid - sysfs sysfs rw
31 24 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
32 31 0:28 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw
33 31 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory
34 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
broken line
`))
	want := map[string]mount{
		"":       {"/sys/fs/cgroup/unified", "/"},
		"memory": {"/sys/fs/cgroup/memory", "/docker/abc"},
		"cpu":    {"/sys/fs/cgroup/cpu,cpuacct", "/"},
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestMembership(t *testing.T) {
	own := parseMembership([]byte("9:name=systemd:/\n4:memory:/a/b\n1:cpu,cpuacct:/c\n0::/user.slice/x:y.scope\nbroken\n"))
	for controller, want := range map[string]string{
		"memory": "/a/b", "cpu": "/c", "cpuacct": "/c", "": "/user.slice/x:y.scope", "pids": "",
	} {
		if own[controller] != want {
			t.Errorf("%q: %q, want %q", controller, own[controller], want)
		}
	}
	for _, c := range []struct {
		m     mount
		group string
		want  []string
	}{
		{mount{"/cg", "/"}, "/a/b", []string{"/cg/a/b", "/cg/a", "/cg"}},
		{mount{"/cg", "/docker/x"}, "/docker/x", []string{"/cg"}},
		{mount{"/cg", "/docker/x"}, "/docker/x/y", []string{"/cg/y", "/cg"}},
		{mount{"/cg", "/docker/x"}, "/elsewhere", []string{"/cg"}},
		{mount{"/cg", "/"}, "/../..", []string{"/cg"}},
	} {
		if got := c.m.chain(c.group); !slices.Equal(got, c.want) {
			t.Errorf("%+v in %s: %q, want %q", c.m, c.group, got, c.want)
		}
	}
}

// TestCgroupV2 uses a directory in place of the mount, because this machine may have only cgroup v1.
func TestCgroupV2(t *testing.T) {
	root := t.TempDir()
	delegated := filepath.Join(root, "user/app")
	if err := os.MkdirAll(delegated, 0o755); err != nil {
		t.Fatal(err)
	}
	control := filepath.Join(delegated, "cgroup.subtree_control")
	if err := os.WriteFile(control, []byte("memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := available(delegated); !slices.Equal(got, []string{"memory", "pids"}) {
		t.Errorf("%q", got)
	}
	dir := filepath.Join(delegated, "deepswe-x")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"memory.max", "pids.max"} { // as in a kernel without swap accounting
		if err := os.WriteFile(filepath.Join(dir, file), []byte("max\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	g := cgroups{unified: true, parents: map[string]string{"memory": delegated, "pids": delegated}}
	made, err := g.make("deepswe-x", env.Limits{Memory: 1 << 20, CPUs: 1, Processes: 7})
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"memory.max": "1048576", "pids.max": "7"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", file, data, err)
		}
	}
	if got := made.paths(); !slices.Equal(got, []string{dir}) {
		t.Errorf("%q", got)
	}
	if got := made.oomFile(); got != filepath.Join(dir, "memory.events") {
		t.Errorf("%q", got)
	}
	if c := g.capabilities(); !c.MemoryLimit || !c.ProcessLimit || c.CPULimit {
		t.Errorf("%+v", c)
	}
}

func TestSettings(t *testing.T) {
	l := env.Limits{Memory: 100, CPUs: 0.5, Processes: 9}
	for _, c := range []struct {
		unified    bool
		controller string
		want       []setting
	}{
		{false, "memory", []setting{{"memory.limit_in_bytes", "100", false}, {"memory.memsw.limit_in_bytes", "100", true}}},
		{false, "cpu", []setting{{"cpu.cfs_period_us", "100000", false}, {"cpu.cfs_quota_us", "50000", false}}},
		{false, "pids", []setting{{"pids.max", "9", false}}},
		{true, "memory", []setting{{"memory.max", "100", false}, {"memory.swap.max", "0", true}}},
		{true, "cpu", []setting{{"cpu.max", "50000 100000", false}}},
		{true, "pids", []setting{{"pids.max", "9", false}}},
	} {
		if got := (cgroups{unified: c.unified}).settings(c.controller, l); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.controller, got, c.want)
		}
	}
}

// TestForkOffTheMainThread: the main thread never enters a sandbox's groups, because /proc/self/cgroup shows the groups
// of the main thread as those of the process.
func TestForkOffTheMainThread(t *testing.T) {
	for range 300 {
		f := newForker()
		err := f.do(func() error {
			if syscall.Gettid() == os.Getpid() {
				return errors.New("a job runs on the main thread")
			}
			return nil
		})
		f.close()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemoveGroupWithOwnThread: a thread of this process in a group is neither killed nor keeps the group from being
// removed.
func TestRemoveGroupWithOwnThread(t *testing.T) {
	name := "deepswe-test-" + strconv.Itoa(os.Getpid())
	groups := detectGroups(name)
	if groups.unified || len(groups.parents) == 0 {
		t.Skip("control groups of version 1 cannot be made here")
	}
	made, err := groups.make(name, env.Limits{Memory: 1 << 30, Processes: 100, CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // never unlocked, so that the thread ends with the test
	for _, dir := range made.dirs {
		if err := enter(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := made.remove(); err != nil {
		t.Error(err)
	}
	for c, home := range groups.home {
		tasks, err := os.ReadFile(filepath.Join(home, "tasks"))
		if err != nil || !slices.Contains(strings.Fields(string(tasks)), strconv.Itoa(syscall.Gettid())) {
			t.Errorf("%s: the thread is not in the process's group (%v)", c, err)
		}
	}
}
