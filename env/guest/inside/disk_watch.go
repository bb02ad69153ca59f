//go:build linux

package inside

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"deepswe/env/disk"
)

// diskWatch kills everything that commands have started when they exceed the disk limit.
//
// Counting files is slow, so it is done only when it may matter. Checking the free space of the file systems takes
// a microsecond, and shows an upper bound: since the last count, the sandbox has written at most what has been
// written there by anybody. The files are counted again only when that bound plus the last count exceeds the limit.
// So a sandbox far from its limit costs four checks a second while commands run, and none otherwise.
//
// Where others write a lot to the same disk, the bound is exceeded again and again. The count decides, so that does a
// sandbox no harm, but it must not count all the time (see timeShare). Meanwhile the watch looks at open files, which
// is quick, and enough to find a single file that grows fast.
//
// Linux reserves blocks as soon as a file is written to, so the free space is up to date.
type diskWatch struct {
	most   usage
	quota  bool // the sandbox has a quota: its free space is not the machine's
	began  time.Time
	roots  []diskRoot
	thread *threads
	kill   func()
	// full receives an error when the machine's own disk is nearly full: the sandbox must end, through no fault of
	// its own.
	full chan error

	wake, stop, ended chan struct{}

	mu       sync.Mutex
	since    time.Time // when the first command began
	running  int       // running commands
	kills    int       // how often the limit was exceeded, and how many of these were reported
	reported int
	note     string

	// The fields below are used by the loop's goroutine only.
	used    usage // the last count
	grown   usage // how far the free space has shrunk since
	ceiling usage // the limit, or slightly more than used if that is larger
	free    []disk.Space
	first   []disk.Space // the free space when the watch began
	counts  timeShare
	glances timeShare // at open files
}

// pristineMargin is how old a change in the upper layer must be to count as the provider's: it puts some files into the
// container before it starts the guest.
const pristineMargin = 10 * time.Minute

// The watch checks as often as the fastest possible writer requires, within bounds.
const (
	fastestBytes = 4 << 30 // per second
	fastestFiles = 400_000
	seldom       = 250 * time.Millisecond
	often        = 20 * time.Millisecond
)

// timeShare limits how much of the time an activity takes: at most a fifth in the long run. The first three runs may
// follow each other at once: a slow count that finds little must not let commands write unseen for several times as
// long.
type timeShare struct {
	last time.Duration
	even time.Time // when the activity will have taken just its share of the time
}

const (
	costShare = 5
	ahead     = 2
)

// affords reports whether the activity may run once more.
func (s *timeShare) affords(now time.Time) bool {
	return !now.Before(s.even.Add(-ahead * costShare * s.last))
}

// charge records a run of the activity.
func (s *timeShare) charge(began time.Time, took time.Duration) {
	if s.even.Before(began) {
		s.even = began
	}
	s.last, s.even = took, s.even.Add(costShare*took)
}

// newDiskWatch starts a watch, or returns nil if there is no limit.
func newDiskWatch(o options, kill func()) *diskWatch {
	if o.disk == (usage{}) {
		return nil
	}
	w := &diskWatch{
		most: o.disk, ceiling: o.disk, quota: o.diskQuota, began: time.Now(), thread: newThreads(1, o.demote()), kill: kill,
		full: make(chan error, 1),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	for _, dir := range o.diskDirs {
		w.roots = append(w.roots, diskRoot{path: dir})
	}
	if len(w.roots) == 0 {
		mounts, _ := os.ReadFile("/proc/self/mountinfo") // without it, nothing can be watched
		w.roots = writableRoots(string(mounts))
	}
	w.free = make([]disk.Space, len(w.roots))
	w.drops()
	w.first = slices.Clone(w.free)
	go w.loop()
	return w
}

// beginCommand tells the watch that a command starts. Its result has to be passed to end.
func (w *diskWatch) beginCommand(asGuest bool) (before int) {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() && !asGuest {
		w.since = time.Now().Add(-20 * time.Millisecond) // the resolution of the kernel's file times
	}
	w.running++
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return w.kills
}

// end returns a note for the command's result, if the limit was exceeded while the command ran, or earlier without
// having been reported.
func (w *diskWatch) end(before int) string {
	if w == nil {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if w.kills == before && w.kills == w.reported {
		return ""
	}
	w.reported = w.kills
	return w.note
}

func (w *diskWatch) close() {
	if w == nil {
		return
	}
	close(w.stop)
	<-w.ended
	w.thread.close()
}

func (w *diskWatch) loop() {
	defer close(w.ended)
	for {
		select {
		case <-w.wake:
		case <-w.stop:
			return
		}
		for w.busy() {
			select {
			case <-time.After(w.pause()):
			case <-w.stop:
				return
			}
			w.look()
		}
	}
}

// busy reports whether anything may be writing.
func (w *diskWatch) busy() bool {
	w.mu.Lock()
	running := w.running
	w.mu.Unlock()
	return running > 0 || !childless()
}

// pause returns how long the next check can wait without missing anything.
func (w *diskWatch) pause() time.Duration {
	bound := w.used.plus(w.grown)
	bytes := float64(w.ceiling.bytes-bound.bytes) / fastestBytes
	files := float64(w.ceiling.files-bound.files) / fastestFiles
	safe := time.Duration(min(bytes, files, 1) * float64(time.Second))
	return max(min(safe, seldom), often)
}

// drops returns by how much the free space of the file systems has shrunk since the last call, and the number of
// files in memory.
func (w *diskWatch) drops() (drop, memory usage) {
	for i, r := range w.roots {
		now, err := disk.SpaceOf(r.path)
		if err != nil {
			continue
		}
		was := w.free[i]
		w.free[i] = now
		if r.memory {
			memory.files += now.Files - now.FreeFiles
			continue
		}
		// Whether it is another mount of a file system that was already seen.
		twin := slices.ContainsFunc(w.free[:i], func(other disk.Space) bool {
			return other.Total == now.Total && other.Files == now.Files
		})
		if was.Total == now.Total && !twin {
			drop = drop.plus(usage{max(was.Free-now.Free, 0), max(was.FreeFiles-now.FreeFiles, 0)})
		}
	}
	return drop, memory
}

// look compares the upper bound with the limit, and counts the files if it is exceeded.
func (w *diskWatch) look() {
	drop, memory := w.drops()
	w.grown = w.grown.plus(drop)
	tight := w.tight()
	if !w.used.plus(w.grown).plus(memory).exceeds(w.ceiling) && tight == nil {
		return
	}
	if !w.counts.affords(time.Now()) {
		if open := w.glance(); open.exceeds(w.ceiling) {
			w.exceeded(open, false)
		}
		return
	}
	counted, deep := w.count(usage{w.ceiling.bytes, w.ceiling.files - memory.files})
	w.used, w.grown = lesser(counted, w.used.plus(w.grown)), usage{}
	switch total := w.used.plus(memory); {
	case total.exceeds(w.ceiling), deep:
		w.exceeded(total, deep)
	case tight != nil && w.share(total):
		select {
		case w.full <- tight:
		default:
		}
	case !total.exceeds(w.most):
		w.ceiling = w.most
	}
}

// count adds up the sandbox's files, stopping when there are more than most. deep reports that directories are
// nested too deep.
func (w *diskWatch) count(most usage) (_ usage, deep bool) {
	t := w.tally(most)
	if t.since.IsZero() {
		return usage{}, false
	}
	began := time.Now()
	err := w.thread.do(context.Background(), func() {
		_ = t.of(descendants()) // it returns an error if there is more than most
	})
	w.counts.charge(began, time.Since(began))
	if err != nil {
		return w.most, false // counting failed: rely on the free space
	}
	return t.total, t.deep
}

// glance adds up the files that are open, stopping when they exceed the limit.
func (w *diskWatch) glance() usage {
	t := w.tally(w.ceiling)
	began := time.Now()
	if t.since.IsZero() || !w.glances.affords(began) {
		return usage{}
	}
	_ = w.thread.do(context.Background(), func() { _ = t.open(descendants()) })
	w.glances.charge(began, time.Since(began))
	return t.total
}

func (w *diskWatch) tally(most usage) *diskTally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &diskTally{since: w.since, most: most, pristine: w.began.Add(-pristineMargin), roots: w.roots}
}

// exceeded kills everything that commands have started. The files stay, so a later command that adds to the excess
// is killed as well.
func (w *diskWatch) exceeded(total usage, deep bool) {
	what := fmt.Sprintf("%d files, more than its limit of %d", total.files, w.most.files)
	switch {
	case deep:
		what = fmt.Sprintf("directories nested more than %d deep, more than its limit", deepest)
	case total.bytes > w.most.bytes:
		what = fmt.Sprintf("%d MiB of disk space, more than its limit of %d MiB", total.bytes>>20, w.most.bytes>>20)
	}
	w.mu.Lock()
	w.kills++
	w.note = "this sandbox has used " + what + ": its processes were ended. Remove files (rm) before anything else"
	w.mu.Unlock()
	w.kill()
	_, memory := w.drops() // what was killed may have written until now
	const slack, everything = 64, 1 << 62
	w.used, _ = w.count(usage{everything, everything})
	w.grown = usage{}
	now := w.used.plus(memory)
	w.ceiling = w.most
	if now.exceeds(w.most) {
		w.ceiling.bytes = max(w.most.bytes, now.bytes+min(w.most.bytes/slack, 32<<20))
		w.ceiling.files = max(w.most.files, now.files+w.most.files/slack)
	}
}

// tight returns an error if the machine's own disk is nearly full.
func (w *diskWatch) tight() error {
	for i, r := range w.roots {
		if r.memory || w.quota {
			continue
		}
		if err := w.free[i].Check(r.path); err != nil {
			return err
		}
	}
	return nil
}

// share reports whether a sandbox must end so that the machine keeps some room. The fuller the disk, the less a
// sandbox may have written. On a full disk all must end, because the results of commands there mean nothing.
func (w *diskWatch) share(used usage) bool {
	const last = 0.25
	short := func(free, floor, used, most int64) bool {
		left := float64(free) / float64(floor)
		return floor > 0 && left < 1 && (left < last || float64(used) > left*float64(most)/2)
	}
	for i, r := range w.roots {
		bytes, files := w.free[i].Floor()
		if r.memory || w.quota || bytes <= 0 {
			continue
		}
		if short(w.free[i].Free, bytes, used.bytes, w.most.bytes) ||
			short(w.free[i].FreeFiles, files, used.files, w.most.files) {
			return true
		}
	}
	return false
}
