package docker

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/env"
)

// soak returns the numbers of sandboxes and of calls in each, which DEEPSWE_TEST_SOAK sets, as in 128x200.
func soak(t *testing.T, sandboxes, calls int) (int, int) {
	t.Helper()
	if size := os.Getenv("DEEPSWE_TEST_SOAK"); size != "" {
		if _, err := fmt.Sscanf(size, "%dx%d", &sandboxes, &calls); err != nil {
			t.Fatalf("DEEPSWE_TEST_SOAK=%s: %v", size, err)
		}
	}
	return sandboxes, calls
}

// TestMany runs many sandboxes at once. No call may fail, and nothing may be left.
func TestMany(t *testing.T) {
	sandboxes, calls := soak(t, 8, 40)
	p := provider(t, Options{})
	needImage(t, p, bookworm)
	began := time.Now()
	before := resident(t)
	all := make([]env.Sandbox, sandboxes)
	each := func(f func(i int) error) {
		var wg sync.WaitGroup
		for i := range all {
			wg.Go(func() {
				if err := f(i); err != nil {
					t.Errorf("sandbox %d: %v", i, err)
				}
			})
		}
		wg.Wait()
	}
	each(func(i int) (err error) {
		all[i], err = p.Start(t.Context(), env.Spec{Image: bookworm, Run: "soak", Rollout: fmt.Sprint(i)})
		return err
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d sandboxes were ready after %v", sandboxes, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	views := make([][]time.Duration, sandboxes)
	each(func(i int) (err error) {
		views[i], err = work(t.Context(), all[i], i, calls)
		return err
	})
	took := slices.Concat(views...)
	slices.Sort(took)
	t.Logf("%d calls in each took %v; a view p50 %v, p95 %v, max %v", calls, time.Since(began).Round(time.Millisecond),
		took[len(took)/2], took[len(took)*95/100], took[len(took)-1])
	t.Logf("host memory for each: %.2f MiB", float64(resident(t)-before)/float64(sandboxes)/(1<<20))
	began = time.Now()
	each(func(i int) error { return all[i].Close(t.Context()) })
	t.Logf("all were removed after %v", time.Since(began).Round(time.Millisecond))
	if found := ours(t, p.daemons[0], p.owner)[kindSandbox]; len(found) > 0 {
		t.Errorf("%d sandboxes are left", len(found))
	}
}

// work does what a rollout does: it views, searches, edits and runs. It returns how long each view took.
func work(ctx context.Context, s env.Sandbox, id, calls int) ([]time.Duration, error) {
	file := "/testbed/file.txt"
	content := strings.Repeat(fmt.Sprintf("sandbox %d has lines of this length, and there are many of them.\n", id), 64)
	if _, err := s.Write(ctx, file, []byte(content), env.WriteOptions{Parents: true}); err != nil {
		return nil, err
	}
	var views []time.Duration
	for n := range calls {
		var err error
		switch n % 10 {
		case 3:
			var r env.Result
			r, err = s.Run(ctx, env.Command{Line: fmt.Sprintf("echo %d; wc -l < file.txt", n), Timeout: 2 * time.Minute})
			if want := fmt.Sprintf("%d\n64\n", n); err == nil && string(r.Stdout.Head) != want {
				err = fmt.Errorf("call %d printed %q, want %q: %+v, %q", n, r.Stdout.Head, want, r, r.Stderr.Head)
			}
		case 6:
			var m env.Matches
			m, err = s.Search(ctx, env.Query{Term: "many of them"})
			if err == nil && m.Total != 64 {
				err = fmt.Errorf("call %d found %d lines, want 64", n, m.Total)
			}
		case 9:
			_, err = s.Write(ctx, file, []byte(content), env.WriteOptions{})
		default:
			began := time.Now()
			var data []byte
			data, _, err = s.Read(ctx, file, env.ReadOptions{})
			views = append(views, time.Since(began))
			if err == nil && string(data) != content {
				err = fmt.Errorf("call %d read %d bytes that differ from what was written", n, len(data))
			}
		}
		if err != nil {
			return views, err
		}
	}
	return views, nil
}

// resident returns the resident memory of this process after a garbage collection.
func resident(t testing.TB) int64 {
	t.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kib int64
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmRSS in /proc/self/status")
	return 0
}
