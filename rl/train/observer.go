package train

import (
	"bytes"
	"fmt"
	"log/slog"
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

// recorder collects the points of a run, keeps its report up to date, and passes everything on.
type recorder struct {
	run    Result
	config Config
	dir    *run.Dir
	next   Observer
	now    func() time.Time
	log    *slog.Logger

	warnings []string
	written  time.Time
}

func (w *recorder) Playing(step int, s Split, done, total int) {
	if w.next != nil {
		w.next.Playing(step, s, done, total)
	}
}

func (w *recorder) Warning(text string) {
	w.warnings = append(w.warnings, text)
	if w.next != nil {
		w.next.Warning(text)
	}
}

func (w *recorder) Point(p metrics.Point) {
	w.run.Points = append(w.run.Points, p)
	if w.next != nil {
		w.next.Point(p)
	}
	if now := w.now(); now.Sub(w.written) >= reportEvery {
		w.written = now
		// A report that could not be written does not stop the training; only the last one is an error.
		if err := w.report(); err != nil {
			w.log.Warn("report not written", "error", err)
		}
	}
}

func (w *recorder) report() error {
	text, err := w.config.YAML()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	page := report.Run{
		Name: w.run.Run, Steps: w.config.Steps, Seed: w.config.Seed, Algorithm: w.config.Algorithm.Preset,
		Config:   string(text),
		Warnings: w.warnings, Points: w.run.Points,
	}
	if err := report.WriteRun(&b, page); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return disk.WriteFile(w.dir.Path(ReportFile), b.Bytes())
}
