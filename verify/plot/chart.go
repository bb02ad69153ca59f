package plot

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

// Chart is a plot of lines.
type Chart struct {
	Title string
	Lines []Line
	// Marks are levels to compare with.
	Marks []Mark
	// Stacked draws the lines as areas on top of each other.
	Stacked bool
	// Zero makes the axis begin at 0.
	Zero bool
	// Share is set if the values are shares, so that bands are cut off at 0 and 1.
	Share bool
	// X is the unit of the horizontal axis; empty means "step".
	X string
	// Fractions lets the horizontal axis have ticks between whole numbers.
	Fractions bool
	// Ticks are the marks of the horizontal axis, where round numbers would not do.
	Ticks []Tick
}

// Tick is a mark of an axis.
type Tick struct {
	At    float64
	Label string
}

// Line is one curve. Low and High, which have the same steps, are the bounds of a band around it.
type Line struct {
	Label     string
	Points    Series
	Low, High Series
	// Color is the place in the palette.
	Color int
	// Faint lines are drawn behind the others. Dots marks each point.
	Faint, Dots bool
}

// Mark is a level across the plot.
type Mark struct {
	Label string
	Y     float64
}

// Series is one curve.
type Series []Point

// Point is a place on it.
type Point struct{ X, Y float64 }

// Style is the style sheet of charts and of the pages around them, light or dark like the reader's system.
//
//go:embed style.css
var Style string

// The plot's size and margins, in the units of its viewBox.
const (
	height      = 260.0
	left, right = 52.0, 14.0
	top, bottom = 10.0, 26.0
	width       = 560.0
	maxDrawn    = 600 // points of a line; more cannot be told apart
)

// Colors is the length of the palette in style.css.
const Colors = 8

// Draw renders charts and leaves out those without a curve.
func Draw(charts ...Chart) []template.HTML {
	var out []template.HTML
	for _, c := range charts {
		c.Lines = slices.DeleteFunc(c.Lines, func(l Line) bool { return len(l.Points) == 0 })
		if len(c.Lines) > 0 {
			out = append(out, c.svg())
		}
	}
	return out
}

// plot is a chart being drawn.
type plot struct {
	strings.Builder
	x0, x1, y0, y1 float64
}

func (c Chart) svg() template.HTML {
	p := &plot{}
	if c.Stacked {
		c.Lines = stack(c.Lines)
	}
	if c.Share {
		c.Lines = shares(c.Lines)
	}
	c.scale(p)
	fmt.Fprintf(p, `<figure><figcaption>%s</figcaption>`, template.HTMLEscapeString(c.Title))
	steps := ""
	if c.X == "" { // a page around it can ask for a part of them
		steps = fmt.Sprintf(` data-from="%g" data-to="%g"`, p.x0, p.x1)
	}
	fmt.Fprintf(p, `<svg viewBox="0 0 %g %g"%s role="img" aria-label="%s">`, width, height, steps,
		template.HTMLEscapeString(c.Title))
	p.axes(c)
	fmt.Fprintf(p, `<text class="xname" x="%.1f" y="%.1f">%s</text>`, width-right, height-bottom-4,
		template.HTMLEscapeString(cmp.Or(c.X, "step")))
	for _, l := range c.Lines {
		p.band(l, c.Stacked)
	}
	for _, m := range c.Marks {
		fmt.Fprintf(p, `<line class="mark" x1="%g" x2="%.1f" y1="%.1f" y2="%.1f"/>`,
			left, width-right, p.py(m.Y), p.py(m.Y))
		fmt.Fprintf(p, `<text class="marklabel" x="%.1f" y="%.1f">%s %s</text>`,
			width-right, p.py(m.Y)-4, template.HTMLEscapeString(m.Label), Number(m.Y))
	}
	for _, l := range c.Lines {
		p.line(l, c)
	}
	p.WriteString(`</svg>`)
	c.legend(p)
	p.WriteString(`</figure>`)
	return template.HTML(p.String())
}

// stack adds each line's values to those below it and hangs an area between the two.
func stack(lines []Line) []Line {
	below := map[float64]float64{}
	out := make([]Line, len(lines))
	for i, l := range lines {
		out[i] = Line{Label: l.Label, Color: l.Color}
		for _, q := range l.Points {
			out[i].Low = append(out[i].Low, Point{q.X, below[q.X]})
			below[q.X] += q.Y
			out[i].Points = append(out[i].Points, Point{q.X, below[q.X]})
		}
		out[i].High = out[i].Points
	}
	return out
}

// shares cuts bands off at 0 and 1.
func shares(lines []Line) []Line {
	out := slices.Clone(lines)
	cut := func(s Series) Series {
		s = slices.Clone(s)
		for i := range s {
			s[i].Y = max(0, min(1, s[i].Y))
		}
		return s
	}
	for i := range out {
		out[i].Low, out[i].High = cut(out[i].Low), cut(out[i].High)
	}
	return out
}

// scale finds the ranges of both axes.
func (c Chart) scale(p *plot) {
	p.x0, p.x1, p.y0, p.y1 = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, l := range c.Lines {
		for _, s := range []Series{l.Points, l.Low, l.High} {
			for _, q := range s {
				p.x0, p.x1 = min(p.x0, q.X), max(p.x1, q.X)
				p.y0, p.y1 = min(p.y0, q.Y), max(p.y1, q.Y)
			}
		}
	}
	for _, m := range c.Marks {
		p.y0, p.y1 = min(p.y0, m.Y), max(p.y1, m.Y)
	}
	if c.Zero || c.Stacked {
		p.y0, p.y1 = min(p.y0, 0), max(p.y1, 0)
	}
	p.x0, p.x1 = widen(p.x0, p.x1)
	if margin := (p.x1 - p.x0) / 25; len(c.Ticks) > 0 {
		p.x0, p.x1 = p.x0-margin, p.x1+margin
	}
	p.y0, p.y1 = widen(p.y0, p.y1)
	step := tick(p.y1 - p.y0)
	p.y0, p.y1 = math.Floor(p.y0/step)*step, math.Ceil(p.y1/step-1e-9)*step
}

// widen makes a range wide enough to be divided: a span of a few ulps has no round steps.
func widen(low, high float64) (float64, float64) {
	size := max(math.Abs(low), math.Abs(high))
	if high-low > max(1e-9*size, 1e-100) {
		return low, high
	}
	return low, low + max(1, 1e-6*size)
}

// tick is a round distance of about a quarter of a range.
func tick(span float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(span/4)))
	for _, f := range []float64{1, 2, 2.5, 5} {
		if span/(unit*f) <= 5 {
			return unit * f
		}
	}
	return unit * 10
}

func (p *plot) px(x float64) float64 { return left + (x-p.x0)/(p.x1-p.x0)*(width-left-right) }
func (p *plot) py(y float64) float64 {
	return height - bottom - (y-p.y0)/(p.y1-p.y0)*(height-top-bottom)
}

func (p *plot) axes(c Chart) {
	step := tick(p.y1 - p.y0)
	for i := range int(math.Round((p.y1-p.y0)/step)) + 1 {
		y := p.y0 + float64(i)*step
		if math.Abs(y) < step/1e6 {
			y = 0
		}
		fmt.Fprintf(p, `<line class="grid" x1="%g" x2="%.1f" y1="%.1f" y2="%.1f"/>`, left, width-right, p.py(y), p.py(y))
		fmt.Fprintf(p, `<text class="ylabel" x="%g" y="%.1f">%s</text>`, left-6, p.py(y)+4, Short(y))
	}
	for _, t := range c.Ticks {
		p.xlabel(t.At, t.Label)
	}
	if len(c.Ticks) > 0 {
		return
	}
	if step = tick(p.x1 - p.x0); !c.Fractions {
		step = max(1, math.Floor(step))
	}
	first := math.Ceil(p.x0 / step)
	for i := range max(0, int(math.Floor(p.x1/step+1e-6)-first)+1) {
		x := (first + float64(i)) * step
		p.xlabel(x, Short(x))
	}
}

func (p *plot) xlabel(x float64, text string) {
	fmt.Fprintf(p, `<text class="xlabel" x="%.1f" y="%g">%s</text>`, p.px(x), height-8, template.HTMLEscapeString(text))
}

// place formats a point's position on the horizontal axis.
func (c Chart) place(x float64) string {
	for _, t := range c.Ticks {
		if t.At == x {
			return cmp.Or(c.X, "step") + " " + t.Label
		}
	}
	return cmp.Or(c.X, "step") + " " + Number(x)
}

// thin leaves out points that are too close to be seen, but never the last.
func thin(s Series) Series {
	if len(s) <= maxDrawn {
		return s
	}
	out := make(Series, 0, maxDrawn+1)
	for i := range maxDrawn {
		out = append(out, s[i*len(s)/maxDrawn])
	}
	return append(out, s[len(s)-1])
}

func (p *plot) path(s Series) string {
	var b strings.Builder
	for i, q := range thin(s) {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%.1f,%.1f", p.px(q.X), p.py(q.Y))
	}
	return b.String()
}

func (p *plot) band(l Line, area bool) {
	if len(l.Low) == 0 || len(l.High) == 0 {
		return
	}
	class := "band"
	if area {
		class = "area"
	}
	if len(l.Low) == 1 { // a band without a width is a bar
		fmt.Fprintf(p, `<polyline class="line c%d" points="%s %s"/>`, l.Color%Colors, p.path(l.Low), p.path(l.High))
		return
	}
	back := slices.Clone(l.Low)
	slices.Reverse(back)
	fmt.Fprintf(p, `<polygon class="%s c%d" points="%s %s"/>`, class, l.Color%Colors, p.path(l.High), p.path(back))
}

func (p *plot) line(l Line, c Chart) {
	class := "line"
	if l.Faint {
		class = "line faint"
	}
	fmt.Fprintf(p, `<polyline class="%s c%d" points="%s"/>`, class, l.Color%Colors, p.path(l.Points))
	points := thin(l.Points)
	radius := 0.0
	if l.Dots || len(points) == 1 {
		radius = 3
	}
	for i, q := range points {
		if radius == 0 && (l.Faint || i%max(1, len(points)/60) > 0) {
			continue
		}
		// Every point can be read off by pointing at it.
		fmt.Fprintf(p, `<circle class="dot c%d" cx="%.1f" cy="%.1f" r="%g"/>`, l.Color%Colors, p.px(q.X), p.py(q.Y), radius)
		fmt.Fprintf(p, `<circle class="touch" cx="%.1f" cy="%.1f" r="6"><title>%s, %s: %s</title></circle>`,
			p.px(q.X), p.py(q.Y), template.HTMLEscapeString(l.Label), template.HTMLEscapeString(c.place(q.X)), Number(q.Y))
	}
}

func (c Chart) legend(p *plot) {
	if len(c.Lines) < 2 {
		return
	}
	p.WriteString(`<div class="legend">`)
	for _, l := range c.Lines {
		class := ""
		if l.Faint {
			class = " faint"
		}
		fmt.Fprintf(p, `<span><i class="c%d%s"></i>%s</span>`, l.Color%Colors, class, template.HTMLEscapeString(l.Label))
	}
	p.WriteString(`</div>`)
}
