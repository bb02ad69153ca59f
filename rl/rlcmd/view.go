package rlcmd

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"

	"deepswe/agent/cli"
	"deepswe/rl/metrics"
	"deepswe/verify/plot"
)

// view shows training on a screen: on a terminal live lines with the state of each run, else a line for each step.
type view struct {
	*cli.Screen // its lock guards what follows
	now         func() time.Time
	style       styles
	runs        []*runView
}

type styles struct{ title, soft, good, warn lipgloss.Style }

func newView(on *cli.Screen, now func() time.Time) *view {
	r := on.Renderer()
	v := &view{Screen: on, now: now, style: styles{
		title: r.NewStyle().Bold(true),
		soft:  r.NewStyle().Foreground(lipgloss.Color("8")),
		good:  r.NewStyle().Foreground(lipgloss.Color("2")),
		warn:  r.NewStyle().Foreground(lipgloss.Color("3")),
	}}
	v.Show(v.draw)
	return v
}

// run begins to show a run with the given number of steps.
func (v *view) run(name string, steps int) *runView {
	v.Lock()
	defer v.Unlock()
	r := &runView{view: v, name: name, steps: steps, begun: v.now(), from: -1, values: map[string]float64{}}
	v.runs = append(v.runs, r)
	return r
}

type runView struct {
	view  *view
	name  string
	steps int
	begun time.Time
	// from is the step before the first that this process took, -1 if it has taken none: the time left is estimated from
	// it.
	from, step  int
	phase       string
	done, total int
	// rewards are the steps' mean rewards; losses are their losses, if examples are imitated.
	rewards, losses []float64
	values          map[string]float64
	finished        bool
}

// playing reports how many rollouts of a phase of a step have ended.
func (r *runView) playing(step int, phase string, done, total int) {
	r.view.Lock()
	defer r.view.Unlock()
	r.step, r.phase, r.done, r.total = step, phase, done, total
}

// point holds the numbers of a finished step.
func (r *runView) point(p metrics.Point) {
	v := r.view
	v.Lock()
	defer v.Unlock()
	maps.Copy(r.values, p.Values)
	reward, rewarded := p.Values["reward/mean"]
	loss, imitated := p.Values["sft/loss"]
	trained := rewarded || imitated
	if trained || p.Step == 0 { // else a validation beside the training, of an earlier step
		if r.from < 0 && p.Step > 0 {
			r.from = p.Step - 1
		}
		r.step, r.done, r.total = p.Step, 0, 0
		r.finished = p.Step >= r.steps
	}
	if rewarded {
		r.rewards = append(r.rewards, reward)
	}
	if imitated {
		r.losses = append(r.losses, loss)
	}
	if !v.Live() {
		v.Line(r.line(p))
	}
}

// warning prints a line above the live ones.
func (r *runView) warning(text string) {
	v := r.view
	v.Lock()
	defer v.Unlock()
	v.Line(ansi.Wrap(v.style.warn.Render("warning: ")+r.name+": "+text, v.Width()-1, ""))
}

// draw makes the live lines.
func (v *view) draw(width int) []string {
	var lines []string
	switch len(v.runs) {
	case 0:
	case 1:
		lines = v.single(v.runs[0], v.now())
	default:
		lines = v.several()
	}
	for i, l := range lines {
		lines[i] = cli.Cut(l, width-1)
	}
	return lines
}

// single shows one run in detail.
func (v *view) single(r *runView, now time.Time) []string {
	s := v.style
	lines := []string{
		s.title.Render(r.name) + s.soft.Render(fmt.Sprintf("  step %d of %d%s", r.step, r.steps, r.left(now))),
	}
	working := ""
	if r.total > 0 {
		working = s.soft.Render(fmt.Sprintf("  %s %d/%d", r.phase, r.done, r.total))
	}
	lines = append(lines, s.good.Render(bar(r.step, r.steps, 40))+working)
	if len(r.rewards) > 0 {
		spark := s.good.Render(plot.Sparkline(r.rewards, 40))
		lines = append(lines, fmt.Sprintf("reward  %.3f  %s", r.rewards[len(r.rewards)-1], spark))
	}
	if n := len(r.losses); n > 0 {
		text := fmt.Sprintf("loss    %.3f  %s", r.losses[n-1], s.good.Render(plot.Sparkline(r.losses, 40)))
		if held, ok := r.values["val/loss"]; ok {
			text += s.soft.Render(fmt.Sprintf("  held out %.3f", held))
		}
		lines = append(lines, text)
	}
	if pass, ok := r.values["val/pass@1"]; ok {
		text := fmt.Sprintf("val     %.3f  [%.2f, %.2f]", pass, r.values["val/pass@1_low"], r.values["val/pass@1_high"])
		if random, ok := r.values["val/random"]; ok {
			text += s.soft.Render(fmt.Sprintf("  random moves %.3f", random))
		}
		lines = append(lines, text)
	}
	if _, ok := r.values["groups/total"]; ok {
		gradient := "?"
		if norm, ok := r.values["optim/grad_norm"]; ok {
			gradient = plot.Number(norm)
		}
		lines = append(lines, fmt.Sprintf("groups  %.0f none  %.0f some  %.0f all solved", r.values["groups/solve_none"],
			r.values["groups/solve_partial"], r.values["groups/solve_all"]),
			fmt.Sprintf("update  entropy %.3f  clipped %.3f  gradient %s  kl %s", r.values["entropy/mean"],
				r.values["loss/clip_fraction"], gradient, plot.Number(r.values["loss/kl_k3"])))
	}
	return lines
}

// several shows a line for each run under way and counts the rest.
func (v *view) several() []string {
	var lines []string
	done := 0
	for _, r := range v.runs {
		if r.finished {
			done++
			continue
		}
		var latest []string
		if n := len(r.rewards); n > 0 {
			latest = append(latest, fmt.Sprintf("reward %.2f", r.rewards[n-1]))
		}
		if pass, ok := r.values["val/pass@1"]; ok {
			latest = append(latest, fmt.Sprintf("val %.2f", pass))
		}
		lines = append(lines, fmt.Sprintf("%-38s %s %s", shorten(r.name, 38),
			v.style.good.Render(bar(r.step, r.steps, 16)), strings.Join(latest, "  ")))
	}
	return append([]string{v.style.title.Render(fmt.Sprintf("%d runs finished", done))}, lines...)
}

// left is how long the steps still to come will take, by those that this process took.
func (r *runView) left(now time.Time) string {
	taken := r.step - r.from
	if r.from < 0 || taken < 1 || r.step >= r.steps {
		return ""
	}
	return ", " + plot.Duration(now.Sub(r.begun).Seconds()/float64(taken)*float64(r.steps-r.step)) + " left"
}

// line is a step as one line of at most 80 columns.
func (r *runView) line(p metrics.Point) string {
	text := fmt.Sprintf("step %d/%d", p.Step, r.steps)
	if pass, ok := p.Values["imitation/pass"]; ok {
		text = fmt.Sprintf("imitation, pass %.0f", pass)
	}
	if len(r.view.runs) > 1 {
		text = shorten(r.name, 36) + " " + text
	}
	for _, value := range []struct{ name, format string }{
		{"reward/mean", "reward %.3f"}, {"sft/loss", "loss %.4f"}, {"imitation/loss", "loss %.4f"},
		{"val/loss", "held out %.4f"},
		{"val/pass@1", "val %.3f"}, {"entropy/mean", "entropy %.2f"},
		{"loss/clip_fraction", "clip %.3f"}, {"optim/grad_norm", "grad %.2g"}, {"time/step", "%.1fs"},
	} {
		v, ok := p.Values[value.name]
		part := "  " + fmt.Sprintf(value.format, v)
		if ok && ansi.StringWidth(text+part) < 80 {
			text += part
		}
	}
	return text
}

// shorten cuts a name in its middle: the runs of an ablation differ at both ends.
func shorten(name string, width int) string {
	const tail = 10
	n := ansi.StringWidth(name)
	if n <= width {
		return name
	}
	return ansi.Truncate(name, width-tail, "…") + ansi.TruncateLeft(name, n-tail, "")
}

func bar(done, total, width int) string {
	full := 0
	if total > 0 {
		full = min(width, done*width/total)
	}
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}
