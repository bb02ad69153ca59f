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
)

// Observer watches a run. Its methods are called one at a time and must not block.
type Observer interface {
	// Playing reports how many of a step's rollouts have ended.
	Playing(step int, s Split, done, total int)
	// Point has the numbers of a finished step.
	Point(p metrics.Point)
	// Warning is something that people should look at.
	Warning(text string)
}

// reportEvery is how often the report of a live run is written again.
const reportEvery = 5 * time.Second

// counter tells an observer how many of a step's rollouts have ended.
type counter struct {
	observer Observer

	mu                sync.Mutex
	step, done, total int
}

// begin counts for a step from 0.
func (c *counter) begin(step, total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step, c.done, c.total = step, 0, total
}

func (c *counter) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	// Rollouts for later steps end as well while the trainer works.
	c.observer.Playing(c.step, Train, min(c.done, c.total), c.total)
}

// recorder collects the points of a run, keeps its report up to date, and passes everything on. The report is written
// beside the run, from a copy: it can neither stop nor slow it.
type recorder struct {
	run    Result
	config Config
	dir    *run.Dir
	next   Observer
	now    func() time.Time
	log    *slog.Logger

	mu       sync.Mutex // of what follows, and of the calls of next
	warnings []string
	written  time.Time
	writing  bool
	writers  sync.WaitGroup
}

func (w *recorder) Playing(step int, s Split, done, total int) {
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
	w.run.Points = append(w.run.Points, p)
	if w.next != nil {
		w.next.Point(p)
	}
	if now := w.now(); !w.writing && now.Sub(w.written) >= reportEvery {
		w.written, w.writing = now, true
		page := w.page()
		w.writers.Go(func() {
			// A report that could not be written does not stop the training; only the last one is an error.
			if err := w.write(page); err != nil {
				w.log.Warn("report not written", "error", err)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.writing = false
		})
	}
}

// page is what the report shows now. The caller holds w.mu.
func (w *recorder) page() report.Run {
	algorithm := w.config.Algorithm.Preset
	if w.config.Objective == Imitation {
		algorithm = "supervised fine-tuning"
	}
	return report.Run{
		Name: w.run.Run, Steps: w.config.Steps, Seed: w.config.Seed, Algorithm: algorithm,
		Warnings: slices.Clone(w.warnings), Points: slices.Clone(w.run.Points),
	}
}

// write draws a report. What is wrong with it is an error, and never a panic of the run.
func (w *recorder) write(page report.Run) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("report: %v", v)
		}
	}()
	text, err := w.config.YAML()
	if err != nil {
		return err
	}
	page.Config = string(text)
	var b bytes.Buffer
	if err := report.WriteRun(&b, page); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return disk.WriteFile(w.dir.Path(ReportFile), b.Bytes())
}

// report waits for the reports under way and writes the last one.
func (w *recorder) report() error {
	w.writers.Wait()
	w.mu.Lock()
	page := w.page()
	w.mu.Unlock()
	return w.write(page)
}
