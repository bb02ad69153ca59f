package metrics

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Prometheus serves the last point of each run as a page in Prometheus text format.
type Prometheus struct {
	mu   sync.Mutex
	runs map[string]*latest
}

// latest is the sink of one run.
type latest struct {
	page                    *Prometheus // its lock guards what follows
	values                  map[string]float64
	steps, rollouts, tokens float64
}

// NewPrometheus makes a page without runs.
func NewPrometheus() *Prometheus { return &Prometheus{runs: map[string]*latest{}} }

// Target makes the sinks of runs, each of which is a label on its metrics.
func (p *Prometheus) Target() Target {
	return Target{Name: "Prometheus", Open: func(r Run) Sink {
		p.mu.Lock()
		defer p.mu.Unlock()
		l := &latest{page: p, values: map[string]float64{}}
		p.runs[r.Label] = l
		return l
	}}
}

func (l *latest) Send(_ context.Context, points []Point) error {
	l.page.mu.Lock()
	defer l.page.mu.Unlock()
	for _, p := range points {
		l.takePoint(p)
	}
	return nil
}

func (l *latest) Close(context.Context, error) error { return nil }

// takePoint replaces the values that the page shows. The caller holds the lock.
func (l *latest) takePoint(p Point) {
	values := p.finite()
	// A value stays until there is a newer one: the validation is not run at every step.
	maps.Copy(l.values, values)
	l.values["step"] = float64(p.Step)
	if p.Step > 0 {
		l.steps++
	}
	l.rollouts += values["rollouts/total"]
	l.tokens += values["tokens/trained"]
}

// ServeHTTP writes the page.
func (p *Prometheus) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	// An error here is a reader who went away.
	_, _ = w.Write(p.page())
}

// family is a metric with its samples by run.
type family struct {
	help, kind string
	samples    map[string]float64
}

func (p *Prometheus) page() []byte {
	families := map[string]*family{}
	put := func(name, help, kind, run string, v float64) {
		f := families[name]
		if f == nil {
			f = &family{help: help, kind: kind, samples: map[string]float64{}}
			families[name] = f
		}
		f.samples[run] = v
	}
	p.mu.Lock()
	for run, l := range p.runs {
		put(namespace+"steps_total", "Training steps since this process began.", "counter", run, l.steps)
		put(namespace+"sampled_rollouts_total", "Rollouts since this process began.", "counter", run, l.rollouts)
		put(namespace+"trained_tokens_total", "Trained tokens since this process began.", "counter", run, l.tokens)
		for name, v := range l.values {
			d := Describe(name)
			put(PrometheusName(name), d.Help, "gauge", run, v)
		}
	}
	p.mu.Unlock()

	var b bytes.Buffer
	help, label := strings.NewReplacer(`\`, `\\`, "\n", `\n`), strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help.Replace(f.help), name, f.kind)
		for _, run := range slices.Sorted(maps.Keys(f.samples)) {
			fmt.Fprintf(&b, "%s{run=\"%s\"} %s\n", name, label.Replace(run),
				strconv.FormatFloat(f.samples[run], 'g', -1, 64))
		}
	}
	return b.Bytes()
}

const namespace = "deepswe_train_"

// PrometheusName spells a metric's name as Prometheus wants it: val/pass@1 is deepswe_train_val_pass_at_1. The suffix
// _total belongs to counters, and _count and _sum to histograms, so gauges lose them.
func PrometheusName(name string) string {
	unit := Describe(name).Unit
	var b strings.Builder
	for _, r := range strings.ToLower(strings.ReplaceAll(name, "@", "_at_")) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else {
			b.WriteByte('_')
		}
	}
	s := b.String()
	for _, suffix := range []string{"_total", "_count", "_sum", "_bucket"} {
		s = strings.TrimSuffix(s, suffix)
	}
	if unit != "" {
		s += "_" + unit
	}
	return namespace + s
}
