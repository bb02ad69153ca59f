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

// reportEvery is how often the report of a run under way is written anew.
const reportEvery = 5 * time.Second

// watch collects the points of a run, keeps its report fresh, and passes everything on.
type watch struct {
	run    Result
	config Config
	dir    *run.Dir
	next   Observer
	now    func() time.Time
	log    *slog.Logger

	warnings []string
	written  time.Time
}

func (w *watch) Playing(step int, s Split, done, total int) {
	if w.next != nil {
		w.next.Playing(step, s, done, total)
	}
}

func (w *watch) Warning(text string) {
	w.warnings = append(w.warnings, text)
	if w.next != nil {
		w.next.Warning(text)
	}
}

func (w *watch) Point(p metrics.Point) {
	w.run.Points = append(w.run.Points, p)
	if w.next != nil {
		w.next.Point(p)
	}
	if now := w.now(); now.Sub(w.written) >= reportEvery {
		w.written = now
		// A report that could not be written is no reason to stop learning; the last one is, at the end.
		if err := w.report(); err != nil {
			w.log.Warn("report not written", "error", err)
		}
	}
}

func (w *watch) report() error {
	text, err := w.config.YAML()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	page := report.Run{
		Name: w.run.Run, Steps: w.config.Steps, Seed: w.config.Seed, Algorithm: w.config.Algorithm.Preset, Config: string(text),
		Warnings: w.warnings, Points: w.run.Points,
	}
	if err := report.WriteRun(&b, page); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return disk.WriteFile(w.dir.Path(ReportFile), b.Bytes())
}
