package pages

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// source is a text from which long observations are cut: the source of this program.
func source(t testing.TB) string {
	t.Helper()
	files, err := filepath.Glob("../../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}

// BenchmarkLargeRun measures pages of a run of 10,000 rollouts: the list of runs and the run's first page before
// anything has been read, and pages that read all of it.
func BenchmarkLargeRun(b *testing.B) {
	dir := sample{model: "Qwen3-32B", tasks: 2500, k: 4, skill: .45, length: 1}.write(b, filepath.Join(b.TempDir(), "run"))
	for _, path := range []string{"/", "/run/", "/run/?by=task", "/run/?q=is:unsolved+repo:django&sort=-steps",
		"/run/failures"} {
		b.Run(path, func(b *testing.B) {
			var m runtime.MemStats
			for b.Loop() {
				get(b, handler(b, dir), path, http.StatusOK)
				runtime.ReadMemStats(&m)
			}
			b.ReportMetric(float64(m.HeapAlloc)/1e6, "MB-heap")
			b.ReportMetric(float64(m.Sys)/1e6, "MB-system")
		})
	}
}

// BenchmarkFile writes a run of 500 rollouts of 40 steps as one file.
func BenchmarkFile(b *testing.B) {
	for _, length := range []int{1500, 6000} {
		b.Run(fmt.Sprint(length, " characters an observation"), func(b *testing.B) {
			s := sample{model: "m", tasks: 125, k: 4, skill: .45, length: 40, long: length, source: source(b)}
			dir := s.write(b, filepath.Join(b.TempDir(), "run"))
			var w counter
			for b.Loop() {
				w = 0
				if err := handler(b, dir).WriteFile(&w, dir); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(w)/1e6, "MB")
		})
	}
}

// counter counts the bytes that are written to it.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// BenchmarkLongRollout measures the page of a rollout of 3,000 steps and about 100k tokens, and a step that is
// unfolded.
func BenchmarkLongRollout(b *testing.B) {
	s := sample{model: "m", tasks: 1, k: 1, skill: 1, length: 3000, long: 100, source: source(b)}
	dir := s.write(b, filepath.Join(b.TempDir(), "run"))
	for _, path := range []string{"", "&fragment=2900", "&find=reproduce"} {
		b.Run(path, func(b *testing.B) {
			h := handler(b, dir)
			for b.Loop() {
				get(b, h, "/run/rollout?"+firstRollout+path, http.StatusOK)
			}
		})
	}
}
