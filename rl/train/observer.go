package train

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl/metrics"
	"deepswe/rl/report"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// Observer watches a run. Its methods are called one at a time and must not block.
type Observer interface {
	// Playing reports how many of a step's rollouts have ended.
	Playing(step int, s part.Split, done, total int)
	// Point reports the metrics of a finished step.
	Point(p metrics.Point)
	// Warning reports something that needs attention.
	Warning(text string)
}

// reportEvery is how often the report of a live run is rewritten.
const reportEvery = 5 * time.Second

// counter reports to an observer how many of a step's rollouts have ended.
type counter struct {
	observer Observer

	mu                sync.Mutex
	step, done, total int
}

// beginStep starts counting for a step.
func (c *counter) beginStep(step, total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step, c.done, c.total = step, 0, total
}

func (c *counter) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	// Rollouts of later steps may end, too.
	c.observer.Playing(c.step, part.Train, min(c.done, c.total), c.total)
}

// recorder collects the points of a run, updates its report, and passes everything on. The report is written in the
// background, from a copy: it can neither stop nor slow the run.
type recorder struct {
	// about is the report, without its points and warnings.
	about report.Run
	dir   *run.Dir
	next  Observer
	now   func() time.Time
	log   *slog.Logger

	mu       sync.Mutex // protects the fields below, and the calls of next
	points   []metrics.Point
	warnings []string
	written  time.Time
	writing  bool
	writers  sync.WaitGroup
}

func (w *recorder) Playing(step int, s part.Split, done, total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next != nil {
		w.next.Playing(step, s, done, total)
	}
}

func (w *recorder) Warning(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnings = append(w.warnings, text)
	if w.next != nil {
		w.next.Warning(text)
	}
}

func (w *recorder) Point(p metrics.Point) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.points = append(w.points, p)
	if w.next != nil {
		w.next.Point(p)
	}
	if now := w.now(); !w.writing && now.Sub(w.written) >= reportEvery {
		w.written, w.writing = now, true
		page := w.page()
		w.writers.Go(func() {
			// Failing to write a report does not stop training. Only for the last report is it an error.
			if err := w.write(page); err != nil {
				w.log.Warn("report not written", "error", err)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.writing = false
		})
	}
}

// page returns the data of the report. The caller holds w.mu.
func (w *recorder) page() report.Run {
	page := w.about
	page.Warnings, page.Points = slices.Clone(w.warnings), slices.Clone(w.points)
	return page
}

// write writes a report. A panic becomes an error, so that it does not end the run.
func (w *recorder) write(page report.Run) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("report: %v", v)
		}
	}()
	var b bytes.Buffer
	if err := page.Page().Write(&b); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return disk.WriteFile(w.dir.Path(record.ReportFile), b.Bytes())
}

// report waits for the report under way, and writes the last one.
func (w *recorder) report() error {
	w.writers.Wait()
	w.mu.Lock()
	page := w.page()
	w.mu.Unlock()
	return w.write(page)
}
