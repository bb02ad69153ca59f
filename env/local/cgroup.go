//go:build linux

package local

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"deepswe/env"
)

// cgroups describes where this process may create control groups: one parent directory per controller with cgroup
// v1, the same one for all with cgroup v2.
type cgroups struct {
	unified bool
	parents map[string]string // directory by controller
	home    map[string]string // this process's own group by controller
}

// controllers returns the controllers that limits need.
func controllers() []string { return []string{"memory", "pids", "cpu"} }

// findGroups finds the groups that this process belongs to and keeps those in which it can create others.
func findGroups(mountinfo, membership []byte, name string) cgroups {
	mounts := parseMounts(mountinfo)
	own := parseMembership(membership)
	g := cgroups{parents: map[string]string{}, home: map[string]string{}}
	for _, c := range controllers() {
		if m, ok := mounts[c]; ok {
			chain := m.chain(own[c])
			if dir := firstUsable(chain, name, func(dir string) bool { return usableV1(c, dir) }); dir != "" {
				g.parents[c], g.home[c] = dir, chain[0]
			}
		}
	}
	if m, ok := mounts[""]; ok && len(g.parents) == 0 {
		dir := firstUsable(m.chain(own[""]), name, usableV2)
		for _, c := range available(dir) {
			g.unified, g.parents[c] = true, dir
		}
	}
	return g
}

// detectGroups finds the control groups of this machine. If there are none, limits cannot be enforced, and
// capabilities reports that.
func detectGroups(name string) cgroups {
	mountinfo, _ := os.ReadFile("/proc/self/mountinfo")
	membership, _ := os.ReadFile("/proc/self/cgroup")
	return findGroups(mountinfo, membership, name)
}

// capabilities reports which limits are enforced.
func (g cgroups) capabilities() env.Capabilities {
	return env.Capabilities{
		MemoryLimit: g.parents["memory"] != "", CPULimit: g.parents["cpu"] != "", ProcessLimit: g.parents["pids"] != "",
	}
}

// guestMemory is added to a limit on the memory of each process: Go reserves this much for the guest's heap.
const guestMemory = 96 << 20

// firstUsable returns the first directory in which a group can be created and works returns true.
func firstUsable(dirs []string, name string, works func(dir string) bool) string {
	for _, dir := range dirs {
		trial := filepath.Join(dir, name)
		if os.Mkdir(trial, 0o755) != nil {
			continue
		}
		ok := works(trial)
		os.Remove(trial)
		if ok {
			return dir
		}
	}
	return ""
}

func usableV1(controller, dir string) bool {
	limits := map[string]string{"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.cfs_quota_us"}
	return writable(filepath.Join(dir, limits[controller])) && writable(filepath.Join(dir, "tasks"))
}

// usableV2 requires memory and pids; cpu is often not delegated.
func usableV2(dir string) bool {
	return writable(filepath.Join(dir, "memory.max")) && writable(filepath.Join(dir, "pids.max")) &&
		writable(filepath.Join(dir, "cgroup.procs"))
}

func writable(path string) bool { return opens(path, os.O_WRONLY) }

// opens reports whether this process may open the file with the given flags.
func opens(path string, flags int) bool {
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// available returns the controllers that are enabled for groups below dir.
func available(dir string) []string {
	if dir == "" {
		return nil
	}
	data, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	given := strings.Fields(string(data))
	return slices.DeleteFunc(controllers(), func(c string) bool { return !slices.Contains(given, c) })
}

// mount is the mount point of a hierarchy, and which part of the hierarchy is mounted.
type mount struct{ point, root string }

// chain returns the directories from a group up to the root of the mount.
func (m mount) chain(group string) []string {
	rel, err := filepath.Rel(m.root, group)
	if err != nil || !filepath.IsLocal(rel) {
		rel = "."
	}
	var dirs []string
	for dir := filepath.Join(m.point, rel); ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if dir == m.point || dir == "/" {
			return dirs
		}
	}
}

// parseMounts returns the hierarchies in /proc/self/mountinfo by controller; cgroup v2 has the name "".
func parseMounts(mountinfo []byte) map[string]mount {
	mounts := map[string]mount{}
	for line := range strings.Lines(string(mountinfo)) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		m := mount{point: f[4], root: f[3]}
		switch g[0] {
		case "cgroup":
			for _, option := range strings.Split(g[2], ",") {
				if slices.Contains(controllers(), option) {
					mounts[option] = m
				}
			}
		case "cgroup2":
			mounts[""] = m
		}
	}
	return mounts
}

// parseMembership returns this process's group by controller, from /proc/self/cgroup.
func parseMembership(data []byte) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) < 3 {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			own[c] = f[2]
		}
	}
	return own
}

// group is one sandbox's control group: one directory per controller, or one for all.
type group struct {
	groups cgroups
	dirs   map[string]string // by controller
}

// make creates a group and sets its limits.
func (g cgroups) make(name string, l env.Limits) (*group, error) {
	made := &group{groups: g, dirs: map[string]string{}}
	for c, parent := range g.parents {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil && (!errors.Is(err, fs.ErrExist) || !g.unified) {
			return nil, errors.Join(fmt.Errorf("make a control group: %w", err), made.remove())
		}
		made.dirs[c] = dir
	}
	for c, dir := range made.dirs {
		for _, s := range g.settings(c, l) {
			err := set(filepath.Join(dir, s.file), s.value)
			if err != nil && (!s.optional || !errors.Is(err, fs.ErrNotExist)) {
				return nil, errors.Join(fmt.Errorf("limit a control group: %w", err), made.remove())
			}
		}
	}
	return made, nil
}

type setting struct {
	file, value string
	optional    bool // not every kernel has it
}

func (g cgroups) settings(controller string, l env.Limits) []setting {
	const period = 100_000 // microseconds
	memory := strconv.FormatInt(l.Memory, 10)
	quota := strconv.FormatInt(int64(math.Round(max(l.CPUs*period, 1000))), 10)
	pids := setting{file: "pids.max", value: strconv.FormatInt(l.Processes, 10)}
	switch {
	case controller == "pids":
		return []setting{pids}
	case g.unified && controller == "memory":
		return []setting{{file: "memory.max", value: memory}, {file: "memory.swap.max", value: "0", optional: true}}
	case g.unified:
		return []setting{{file: "cpu.max", value: quota + " " + strconv.Itoa(period)}}
	case controller == "memory":
		return []setting{
			{file: "memory.limit_in_bytes", value: memory},
			{file: "memory.memsw.limit_in_bytes", value: memory, optional: true},
		}
	}
	return []setting{{file: "cpu.cfs_period_us", value: strconv.Itoa(period)}, {file: "cpu.cfs_quota_us", value: quota}}
}

// fork starts a process that belongs to the group from its first moment. cgroup v2 supports that directly. With
// cgroup v1, the calling thread moves into the group, forks, and moves out again.
func (g *group) fork(attr *syscall.SysProcAttr, start func() error) error {
	if g.groups.unified {
		dir, err := os.Open(g.paths()[0])
		if err != nil {
			return fmt.Errorf("enter a control group: %w", err)
		}
		defer dir.Close()
		attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
		return start()
	}
	var entered []string
	err := func() error {
		for c, dir := range g.dirs {
			if err := enter(dir); err != nil {
				return fmt.Errorf("enter a control group: %w", err)
			}
			entered = append(entered, c)
		}
		return start()
	}()
	for _, c := range entered {
		if back := enter(g.groups.home[c]); back != nil {
			err = errors.Join(err, fmt.Errorf("leave a control group: %w", back))
		}
	}
	return err
}

// enter moves only the calling thread into a group of cgroup v1.
func enter(dir string) error { return set(filepath.Join(dir, "tasks"), "0") }

// set writes to a control file, which must exist.
func set(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// oomFile returns the file in which the kernel counts out-of-memory kills; empty without a memory controller.
func (g *group) oomFile() string {
	if g == nil {
		return ""
	}
	dir := g.dirs["memory"]
	switch {
	case dir == "":
		return ""
	case g.groups.unified:
		return dir + "/memory.events"
	}
	return dir + "/memory.oom_control"
}

func (g *group) paths() []string {
	return slices.Compact(slices.Sorted(maps.Values(g.dirs)))
}

func (g *group) remove() error {
	if g == nil {
		return nil
	}
	homes := map[string]string{} // by directory: all controllers share one with cgroup v2
	for c, dir := range g.dirs {
		homes[dir] = g.groups.home[c]
	}
	var failed []error
	for _, dir := range g.paths() {
		failed = append(failed, removeGroup(dir, homes[dir]))
	}
	return errors.Join(failed...)
}

// removeGroup kills what is left in a control group and removes it. On a busy machine, killed processes may take
// seconds to end. Threads of this process, which must not be killed, are moved to home, the process's own group.
func removeGroup(dir, home string) error {
	const patience = 20 * time.Second
	began := time.Now()
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, time.Second) {
		err := syscall.Rmdir(dir)
		if err == nil || errors.Is(err, syscall.ENOENT) {
			return nil
		}
		if time.Since(began) > patience {
			return fmt.Errorf("remove control group %s: %w (still in it: %s)", dir, err, membersOf(dir))
		}
		procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, field := range bytes.Fields(procs) {
			switch pid, err := strconv.Atoi(string(field)); {
			case err != nil || pid <= 1:
			case pid == os.Getpid():
				takeBack(dir, home)
			default:
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		time.Sleep(pause)
	}
}

// takeBack moves this process's own threads from one group of cgroup v1 to another. Under load, one was sometimes found
// in a group that the forking thread had left; how it gets there is not known.
func takeBack(from, to string) {
	if to == "" {
		return
	}
	threads, _ := os.ReadFile(filepath.Join(from, "tasks"))
	for _, id := range strings.Fields(string(threads)) {
		if _, err := os.Stat("/proc/self/task/" + id); err == nil {
			_ = set(filepath.Join(to, "tasks"), id) // tried again while the group cannot be removed
		}
	}
}

// membersOf lists the threads in a control group by their number, name and state, for an error's text.
func membersOf(dir string) string {
	ids, err := os.ReadFile(filepath.Join(dir, "tasks"))
	if err != nil {
		ids, _ = os.ReadFile(filepath.Join(dir, "cgroup.threads"))
	}
	var members []string
	for _, id := range strings.Fields(string(ids)) {
		stat, _ := os.ReadFile("/proc/" + id + "/stat")
		if end := bytes.LastIndexByte(stat, ')'); end > 0 && end+3 <= len(stat) {
			status, _ := os.ReadFile("/proc/" + id + "/status")
			_, process, _ := strings.Cut(string(status), "\nTgid:\t")
			process, _, _ = strings.Cut(process, "\n")
			members = append(members, string(stat[:end+3])+" of process "+process)
		}
	}
	return cmp.Or(strings.Join(members, ", "), "nothing")
}
