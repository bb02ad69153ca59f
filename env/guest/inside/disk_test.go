//go:build linux

package inside

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deepswe/env/disk"
	"deepswe/env/testkit"
)

func TestWritableRoots(t *testing.T) {
	t.Parallel()
	const mounts = `100 99 0:50 / / rw,relatime - overlay overlay rw,lowerdir=a:b,upperdir=c,workdir=d
101 100 0:51 / /proc rw,nosuid - proc proc rw
102 100 0:52 / /dev ro,nosuid - tmpfs tmpfs rw
103 100 0:53 / /dev/shm rw,nosuid - tmpfs shm rw,size=65536k
104 100 254:0 /x/resolv.conf /etc/resolv.conf rw,relatime shared:1 - ext4 /dev/vda rw
105 100 254:0 /guest /run/guest ro,relatime - ext4 /dev/vda rw
106 100 254:0 /data /da\040ta\134 rw,relatime - xfs /dev/vdb rw
107 100 0:54 /deepswe-1 /testbed rw,relatime - tmpfs tmpfs rw
108 100 0:55 / /cache rw,relatime - tmpfs tmpfs rw
109 108 254:0 /covers /cache rw,relatime - ext4 /dev/vda rw
110 100 0:56 / /seen rw,relatime - tmpfs tmpfs rw
111 110 254:0 /fixed /seen ro,relatime - ext4 /dev/vda rw
half a line
`
	want := []diskRoot{
		{path: "/", layered: true}, {path: "/dev/shm", memory: true}, {path: "/etc/resolv.conf"}, {path: `/da ta\`},
		{path: "/testbed"}, {path: "/cache"},
	}
	if diff := cmp.Diff(want, writableRoots(mounts), cmp.AllowUnexported(diskRoot{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDiskTally(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const kib = 1 << 10
	write := func(name string, size int) string {
		return testkit.WriteFile(t, filepath.Join(dir, name), string(make([]byte, size)))
	}
	write("old/before", 64*kib)
	time.Sleep(30 * time.Millisecond) // the kernel's clock for files is coarse
	since := time.Now()
	time.Sleep(30 * time.Millisecond)
	written := write("new", 64*kib)
	write("deep/down/here", 64*kib)
	if err := os.Link(written, filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	hole, err := os.Create(filepath.Join(dir, "hole"))
	if err == nil {
		err = hole.Truncate(1 << 40)
	}
	if err != nil {
		t.Fatal(err)
	}
	hole.Close()
	count := func(most usage) (usage, error) {
		tally := diskTally{since: since, most: most}
		err := tally.root(diskRoot{path: dir})
		return tally.total, err
	}
	// The directory itself is not counted, a file with two names is counted once, and a hole takes no space.
	const files = 5 // new, deep, down, here, hole
	total, err := count(usage{1 << 40, 1 << 40})
	if err != nil || total.files != files || total.bytes < 128*kib || total.bytes > 192*kib {
		t.Errorf("%+v, %v", total, err)
	}
	if total, err := count(usage{1 << 40, 2}); err == nil || total.files != 3 {
		t.Errorf("it does not stop at the limit: %+v, %v", total, err)
	}
	// A directory without permissions hides nothing, and is left without them.
	if err := os.Chmod(filepath.Join(dir, "deep"), 0); err != nil {
		t.Fatal(err)
	}
	if again, err := count(usage{1 << 40, 1 << 40}); err != nil || again != total {
		t.Errorf("behind a closed directory: %+v, want %+v (%v)", again, total, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "deep")); err != nil || info.Mode().Perm() != 0 {
		t.Errorf("the directory is open now: %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(filepath.Join(dir, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// Open files are counted first, so that a fast-growing one ends the count before the others are looked at. None is
// counted twice, and files outside the sandbox are not counted.
func TestDiskTallyBeginsWithOpenFiles(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	for i := range 50 {
		testkit.WriteFile(t, filepath.Join(dir, "many", fmt.Sprint(i)), "x")
	}
	const size = 1 << 20
	for _, name := range []string{filepath.Join(dir, "growing"), filepath.Join(elsewhere, "other")} {
		testkit.WriteFile(t, name, string(make([]byte, size)))
	}
	sleep := exec.Command("sleep", "60")
	for _, name := range []string{
		filepath.Join(dir, "growing"), filepath.Join(dir, "growing"), filepath.Join(elsewhere, "other"),
	} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		sleep.ExtraFiles = append(sleep.ExtraFiles, f)
	}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { sleep.Process.Kill(); sleep.Wait() }()

	count := func(most usage) (usage, error) {
		tally := diskTally{since: time.Unix(0, 0), most: most, roots: []diskRoot{{path: dir}}}
		err := tally.of([]disk.Stat{{PID: sleep.Process.Pid}})
		return tally.total, err
	}
	const files = 52 // many, what is in it, growing
	if total, err := count(usage{1 << 40, 1 << 40}); err != nil || total.files != files || total.bytes >= 2*size {
		t.Errorf("%+v, %v", total, err)
	}
	if total, err := count(usage{size / 2, 1 << 40}); err == nil || total.files != 1 {
		t.Errorf("it looks at other files first: %+v, %v", total, err)
	}
}

// A slow count does not delay the next one, unless there have been several in a row.
func TestTimeShare(t *testing.T) {
	t.Parallel()
	const slow, hour = 10 * time.Second, time.Hour
	began := time.Now()
	now, counts := began, 0
	var s timeShare
	for now.Sub(began) < hour {
		if !s.affords(now) {
			now = now.Add(often)
			continue
		}
		s.charge(now, slow)
		now = now.Add(slow)
		if counts++; counts == ahead+1 && now.Sub(began) != (ahead+1)*slow {
			t.Errorf("the first counts end after %v, want %v", now.Sub(began), (ahead+1)*slow)
		}
	}
	if most := int(hour/slow)/costShare + ahead + 1; counts > most || counts < most-2 {
		t.Errorf("%d counts in an hour, want %d", counts, most)
	}
}

// On an overlay, a directory that has not changed for long is not searched, because it has nothing new.
func TestDiskTallyOfAnOverlay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "sub", "file"), "x")
	for name, c := range map[string]struct {
		pristine time.Time
		files    int64
	}{"all is new": {time.Now().Add(-time.Hour), 2}, "all is old": {time.Now().Add(time.Hour), 1}} {
		tally := diskTally{since: time.Now().Add(-time.Hour), pristine: c.pristine, most: usage{1 << 40, 1 << 40}}
		if err := tally.root(diskRoot{path: dir, layered: true}); err != nil || tally.total.files != c.files {
			t.Errorf("%s: %d files, want %d (%v)", name, tally.total.files, c.files, err)
		}
	}
}

// When the watch may not count, it still finds an open file that is larger than the limit, but nothing else.
func TestDiskWatchGlances(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	for name, tc := range map[string]struct {
		limit int64
		kills int
	}{"an open file": {size / 2, 1}, "all files together": {size + size/2, 0}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			kills := 0
			w := newDiskWatch(options{
				disk: usage{tc.limit, 1 << 40}, diskDirs: []string{dir}, uid: os.Getuid(), gid: os.Getgid(),
			}, func() { kills++ })
			defer w.close()
			w.thread.close()
			w.thread = newThreads(1, nil) // the watch's own thread could not see the files that root has open
			w.mu.Lock()
			w.since = time.Now().Add(-time.Hour)
			w.mu.Unlock()
			testkit.WriteFile(t, filepath.Join(dir, "closed"), string(make([]byte, size)))
			name := testkit.WriteFile(t, filepath.Join(dir, "growing"), string(make([]byte, size)))
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			sleep := exec.Command("sleep", "60")
			sleep.ExtraFiles = []*os.File{f}
			if err := sleep.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { sleep.Process.Kill(); sleep.Wait() }()
			for range ahead + 1 {
				w.counts.charge(time.Now(), time.Hour)
			}
			w.grown = usage{1 << 40, 0}
			w.look()
			if kills != tc.kills {
				t.Errorf("%d kills, want %d", kills, tc.kills)
			}
		})
	}
}

// What a command writes until it is killed counts as its own, not as the next command's.
func TestDiskWatchCountsAfterTheKill(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/dev/shm", "deepswe-test-")
	if err != nil {
		t.Skip("needs a file system in memory: ", err)
	}
	defer os.RemoveAll(dir)
	const late = 200
	w := newDiskWatch(options{
		disk: usage{1 << 60, 1}, diskDirs: []string{t.TempDir()}, uid: os.Getuid(), gid: os.Getgid(),
	}, func() {
		for i := range late {
			testkit.WriteFile(t, filepath.Join(dir, fmt.Sprint(i)), "")
		}
	})
	defer w.close()
	w.roots = []diskRoot{{path: dir, memory: true}}
	w.free = make([]disk.Space, 1)
	_, before := w.drops()
	w.look()
	if most := before.files + late; w.kills != 1 || w.ceiling.files < most {
		t.Errorf("%d kills, and the next beyond %d files, want 1 and %d or more", w.kills, w.ceiling.files, most)
	}
}

// BenchmarkDiskTally measures a count, by the number of files.
func BenchmarkDiskTally(b *testing.B) {
	for _, n := range []int{1000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := b.TempDir()
			for i := range n {
				if i%100 == 0 {
					os.Mkdir(filepath.Join(dir, fmt.Sprint(i/100)), 0o755)
				}
				os.WriteFile(filepath.Join(dir, fmt.Sprint(i/100), fmt.Sprint(i)), []byte("x"), 0o644)
			}
			for b.Loop() {
				tally := diskTally{since: time.Unix(0, 0), most: usage{1 << 40, 1 << 40}}
				if tally.root(diskRoot{path: dir}) != nil || tally.total.files < int64(n) {
					b.Fatal(tally.total)
				}
			}
		})
	}
}

// BenchmarkDiskLook measures a look that finds nothing to do.
func BenchmarkDiskLook(b *testing.B) {
	w := newDiskWatch(options{
		disk: usage{1 << 60, 1 << 60}, diskDirs: []string{b.TempDir()}, uid: os.Getuid(), gid: os.Getgid(),
	}, func() {})
	defer w.close()
	for b.Loop() {
		w.look()
	}
}
