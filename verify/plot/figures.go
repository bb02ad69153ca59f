package plot

import (
	"bufio"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Spark is a curve as small as a word.
func Spark(s Series) template.HTML {
	if len(s) < 2 || s[0].X == s[len(s)-1].X {
		return ""
	}
	const w, h = 120.0, 22.0
	low, high := math.Inf(1), math.Inf(-1)
	for _, q := range s {
		low, high = min(low, q.Y), max(high, q.Y)
	}
	if low == high {
		high = low + 1
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 %g %g"><polyline class="line c0" points="`, w, h)
	for _, q := range thin(s) {
		fmt.Fprintf(&b, "%.1f,%.1f ", 1+(q.X-s[0].X)/(s[len(s)-1].X-s[0].X)*(w-2), h-2-(q.Y-low)/(high-low)*(h-4))
	}
	b.WriteString(`"/></svg>`)
	return template.HTML(b.String())
}

// Number writes a value with three significant digits, or all digits of a whole number below a million.
func Number(v float64) string { return digits(v, 3) }

func digits(v float64, n int) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 1e6 || a < 1e-3:
		return strconv.FormatFloat(v, 'e', 2, 64)
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'f', max(0, n-1-int(math.Floor(math.Log10(a)))), 64)
	}
}

// Short formats a value for an axis: with more digits than Number where it has them, but without trailing zeros and
// padding of the exponent.
func Short(v float64) string {
	mantissa, exponent, power := strings.Cut(digits(v, 5), "e")
	if strings.Contains(mantissa, ".") {
		mantissa = strings.TrimSuffix(strings.TrimRight(mantissa, "0"), ".")
	}
	if power {
		n, _ := strconv.Atoi(exponent) // cannot fail: digits wrote it
		mantissa += "e" + strconv.Itoa(n)
	}
	return mantissa
}

// Count writes a number of things with three significant digits: 950, 1.25k, 31.6M.
func Count(v float64) string {
	unit := ""
	for _, larger := range []string{"k", "M", "G"} {
		if v < 999.5 {
			break
		}
		v, unit = v/1000, larger
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + unit
}

// Duration writes seconds as 62ms, 9.5s, 3m20s or 1h02m.
func Duration(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}

// Card is a number at the top of a page.
type Card struct{ Name, Value, Detail string }

//go:embed page.html
var frame string

// Parts are the templates that all pages use: cards, of Card; warnings, of texts; and charts.
//
//go:embed parts.html
var Parts string

// Page is a page of charts.
type Page struct {
	// Template is the text of a template named body, which has Funcs and Parts.
	Template string
	Funcs    template.FuncMap
	// Data has the page's Title and Style, besides what the body takes.
	Data any
}

// Write writes the page as one file without a script.
func (p Page) Write(w io.Writer) error {
	b := bufio.NewWriterSize(w, 1<<16) // a template makes many small writes
	return cmp.Or(p.execute(b, "page"), b.Flush())
}

// Body returns the part below the heading, for a page around it that has the same style.
func (p Page) Body() (template.HTML, error) {
	var b strings.Builder
	err := p.execute(&b, "body")
	return template.HTML(b.String()), err
}

func (p Page) execute(w io.Writer, part string) error {
	t := template.New("page").Funcs(p.Funcs)
	for _, text := range []string{frame, Parts, p.Template} {
		if _, err := t.Parse(text); err != nil {
			return fmt.Errorf("page template: %w", err)
		}
	}
	return t.ExecuteTemplate(w, part, p.Data)
}

// Percent writes a share in percent.
func Percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// Interval writes the ends of an interval of shares in percent, without the sign.
func Interval(low, high float64) string { return fmt.Sprintf("%.1f to %.1f", 100*low, 100*high) }

// Sparkline draws values as text in width columns, each the mean of the values in it, between their extremes.
func Sparkline(values []float64, width int) string {
	columns := values
	if len(values) > width {
		columns = make([]float64, width)
		for i := range columns {
			from, to := i*len(values)/width, (i+1)*len(values)/width
			for _, v := range values[from:to] {
				columns[i] += v / float64(to-from)
			}
		}
	}
	low, high := slices.Min(columns), slices.Max(columns)
	levels := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, v := range columns {
		at := 0
		if high > low {
			at = int((v - low) / (high - low) * float64(len(levels)-1))
		}
		b.WriteRune(levels[at])
	}
	return b.String()
}
