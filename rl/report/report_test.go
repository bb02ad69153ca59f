package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"deepswe/rl/metrics"
	"deepswe/rl/metrics/metricstest"
)

func written(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// wellFormed parses every drawing of a page, checks that it has no NaN or Inf, and returns how many there are.
func wellFormed(t *testing.T, html string) int {
	t.Helper()
	drawings := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(html, -1)
	for _, svg := range drawings {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %.300s", err, svg)
			}
		}
		if bad := regexp.MustCompile(`NaN|Inf`).FindString(svg); bad != "" {
			t.Errorf("%s in %.300s", bad, svg)
		}
	}
	return len(drawings)
}

// selfContained checks that a browser would fetch nothing.
func selfContained(t *testing.T, html string) {
	t.Helper()
	if found := regexp.MustCompile(`(?i)(src|href)\s*=|@import|url\(|https?:|<script`).FindString(html); found != "" {
		t.Errorf("the page refers to something outside: %s", found)
	}
}

func TestRunPage(t *testing.T) {
	t.Parallel()
	html := written(t, func(w io.Writer) error {
		return Run{
			Name: "lake <1>", Algorithm: "grpo++", Seed: 3, Steps: 100, Config: "a: <b> & c\n",
			Warnings: []string{"look <here>"}, Points: metricstest.Points(60),
		}.Page().Write(w)
	})
	selfContained(t, html)
	if n := wellFormed(t, html); n < 12 {
		t.Errorf("%d drawings", n)
	}
	for _, want := range []string{
		"<title>lake &lt;1&gt;</title>", "grpo&#43;&#43; · seed 3 · step 59 of 100", "a: &lt;b&gt; &amp; c",
		"look &lt;here&gt;",
		"Validation pass@1", "random moves 0.2", "a/&lt;script&gt;", "Mean reward of all rollouts that have one",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	// A stop reason that never occurred has no curve.
	if strings.Contains(html, ">timeout<") {
		t.Error("a stop reason that is zero throughout has a curve")
	}
}

func TestPagesOfAlmostNothing(t *testing.T) {
	t.Parallel()
	one := []metrics.Point{{Step: 0, Values: map[string]float64{"val/pass@1": 0}}}
	same := []metrics.Point{{Step: 5, Values: map[string]float64{"reward/mean": -3}},
		{Step: 5, Values: map[string]float64{"reward/mean": -3}}}
	for name, points := range map[string][]metrics.Point{
		"none": nil, "one": one, "same": same, "many": metricstest.Points(2000),
	} {
		t.Run(name, func(t *testing.T) {
			html := written(t, func(w io.Writer) error { return Run{Name: name, Points: points}.Page().Write(w) })
			wellFormed(t, html)
			if len(html) > 2<<20 {
				t.Errorf("%d bytes", len(html))
			}
			wellFormed(t, written(t, func(w io.Writer) error {
				return Ablation{Name: name, Seeds: 1,
					Variants: []Variant{{Name: "a", Runs: []SeedRun{{1, points}}}, {Name: "b"}, {Name: "c"}}}.Page().Write(w)
			}))
		})
	}
}

func seeds(n int, offset float64) []SeedRun {
	r := rand.New(rand.NewPCG(1, 1))
	var runs []SeedRun
	for seed := range n {
		points := metricstest.Points(20)
		for _, p := range points {
			for name := range p.Values {
				p.Values[name] += offset + 0.05*r.NormFloat64()
			}
		}
		runs = append(runs, SeedRun{uint64(seed), points})
	}
	return runs
}

func TestAblationPage(t *testing.T) {
	t.Parallel()
	a := Ablation{Name: "ab", Config: "x: 1", Steps: 20, Seeds: 5, Variants: []Variant{
		{Name: "GRPO++", Algorithm: "grpo++", Runs: seeds(5, 0)}, {Name: "GRPO", Algorithm: "grpo", Runs: seeds(5, 0.1)},
		{Name: "without <clip>", Algorithm: "grpo++", Runs: seeds(3, -0.1)},
	}}
	html := written(t, func(w io.Writer) error { return a.Page().Write(w) })
	selfContained(t, html)
	if n := wellFormed(t, html); n < 7 {
		t.Errorf("%d drawings", n)
	}
	for _, want := range []string{"ablation · 3 variants · 13 of 15 runs · 20 steps each",
		"without &lt;clip&gt;: validation", `class="band`} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// Differences are taken between runs with the same seed, as far as both variants have one.
func TestDifferencesArePaired(t *testing.T) {
	t.Parallel()
	run := func(seed uint64, values ...float64) SeedRun {
		r := SeedRun{Seed: seed}
		for i, v := range values {
			r.Points = append(r.Points, metrics.Point{Step: i, Values: map[string]float64{"val/pass@1": v}})
		}
		return r
	}
	a := Ablation{Variants: []Variant{
		{Name: "base", Runs: []SeedRun{run(1, 0.1, 0.3), run(2, 0.5, 0.7)}},
		{Name: "other", Runs: []SeedRun{run(2, 0.6, 1.0), run(3, 0.9, 0.9)}},
	}}
	rows := compare(a.Variants)
	if rows[0].Area != "0.400 ± 2.541" || rows[0].Final != "0.500 ± 2.541" || rows[0].Change != "" {
		t.Errorf("base: %+v", rows[0])
	}
	if rows[1].Change != "+0.200" {
		t.Errorf("other: %+v: want the difference of seed 2 alone", rows[1])
	}
}

// Half of the interval is t s / sqrt(n), as defined.
func TestMeanInterval(t *testing.T) {
	t.Parallel()
	mean, half := MeanInterval([]float64{1, 2, 3, 4, 5})
	if math.Abs(mean-3) > 1e-12 || math.Abs(half-2.776*math.Sqrt(2.5/5)) > 1e-9 {
		t.Errorf("%v ± %v", mean, half)
	}
	if _, half := MeanInterval([]float64{7}); half != 0 {
		t.Errorf("of one value: ± %v", half)
	}
}
