package pages

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepswe/agent/cli"
	"deepswe/rl"
	"deepswe/rl/metrics"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
	"deepswe/verify/plot"
)

// member is a rollout in the table of a step.
type member struct {
	record.Played
	Place         rl.Placement
	Turns, Tokens int
	Class         string
}

// Link is the address of the rollout's page below the run's.
func (m member) Link(step int) string {
	return "rollout?" + url.Values{
		"step": {strconv.Itoa(step)}, "group": {m.Group}, "attempt": {strconv.Itoa(m.Attempt)},
	}.Encode()
}

// tokenClass is the CSS class of the rollout's tokens: whether it is learned from, and in which direction.
func (m member) tokenClass() string {
	switch {
	case m.Place.Disposition == rl.Trained && m.Place.Advantage > 0:
		return "good"
	case m.Place.Disposition == rl.Trained && m.Place.Advantage < 0:
		return "bad"
	}
	return "off"
}

// group is a group of rollouts in the table of a step.
type group struct {
	Name, Task string
	Members    []member
	Solved     int
}

// step is the data of a step's page: the groups that were admitted to it.
func (h *Handler) step(r *loaded, req *http.Request) (view, error) {
	n, err := strconv.Atoi(req.PathValue("step"))
	if err != nil {
		return view{}, fmt.Errorf("step %s: %w", req.PathValue("step"), errNotFound)
	}
	played, err := playedIn(r, n)
	if err != nil {
		return view{}, err
	}
	data := struct {
		Step     int
		Words    string
		Groups   []group
		Note     string
		Timeline template.HTML
	}{Step: n}
	algorithm, err := algorithmOf(r.Path, n)
	if err != nil {
		data.Note = "No advantages: " + err.Error()
	}
	for _, g := range played {
		data.Groups = append(data.Groups, groupOf(g, algorithm))
	}
	data.Words = inWords(data.Groups)
	if data.Timeline, err = timeline(r.Path, n, played); err != nil {
		return view{}, err
	}
	name := fmt.Sprintf("step %d", n)
	return view{template: "step", Title: r.ID + ": " + name, Crumbs: []link{{name, ""}}, Data: data}, nil
}

// playedIn returns the rollouts of a step.
func playedIn(r *loaded, step int) ([][]record.Played, error) {
	played, err := record.ReadStep(r.Path, step)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("rollouts of step %d: %w: they are kept with rollouts.keep_logs", step, errNotFound)
	}
	return played, err
}

// inWords says what happened in a step.
func inWords(groups []group) string {
	all, none, full := 0, 0, 0
	ends := map[string]int{}
	for _, g := range groups {
		all += len(g.Members)
		switch g.Solved {
		case 0:
			none++
		case len(g.Members):
			full++
		}
		for _, m := range g.Members {
			ends[string(m.Place.Disposition)]++
		}
	}
	delete(ends, "") // of an algorithm that is not known
	text := fmt.Sprintf("%s in %s: none solves its task in %d, some do in %d, all in %d", cli.Plural(all, "rollout"),
		cli.Plural(len(groups), "group"), none, len(groups)-none-full, full)
	for _, name := range slices.Sorted(maps.Keys(ends)) {
		text += fmt.Sprintf("; %d %s", ends[name], name)
	}
	return text + "."
}

// algorithmOf returns the algorithm of the last stage that the metrics show to have begun by a step.
func algorithmOf(dir string, step int) (*rl.Algorithm, error) {
	text, err := os.ReadFile(filepath.Join(dir, record.ConfigFile))
	if err != nil {
		return nil, err
	}
	c, err := config.Load(text, builtin.Parts())
	if err != nil {
		return nil, err
	}
	var points []metrics.Point
	if len(c.Stages) > 0 {
		if points, err = metrics.ReadJSONL(filepath.Join(dir, record.MetricsFile)); err != nil {
			return nil, err
		}
	}
	begun := 0
	for _, p := range points {
		if n, ok := p.Values[record.StageMetric]; ok && p.Step <= step && int(n) <= len(c.Stages) {
			begun = int(n)
		}
	}
	a := c.Stage(begun).RL()
	return &a, nil
}

// groupOf returns a group with its members' advantages, or without them if the algorithm is not known. Advantages
// depend on the group alone, not on the update that it was part of.
func groupOf(played []record.Played, a *rl.Algorithm) group {
	g := group{Name: played[0].Group, Task: played[0].Task}
	members := make([]rl.Member, len(played))
	length := 0
	if a != nil {
		length = a.MaxLength
	}
	for i := range played {
		members[i] = rl.Measure(&played[i].Rollout, length)
	}
	places := make([]rl.Placement, len(played))
	if a != nil {
		if p, _, err := a.Plan(members); err == nil {
			places = p
		}
	}
	for i, p := range played {
		m := member{Played: p, Place: places[i], Turns: members[i].Shape.Turns, Tokens: members[i].Shape.Sampled}
		switch {
		case p.Reward == nil:
			m.Class = "nograde"
		case *p.Reward >= 1:
			m.Class = "all"
			g.Solved++
		default:
			m.Class = "none"
		}
		g.Members = append(g.Members, m)
	}
	return g
}

// The timeline's size, in the units of its viewBox.
const (
	timelineWidth = 1160.0
	rowHeight     = 6.0
	trainerHeight = 12.0
	maxRows       = 600
)

// timeline draws when each rollout of a step was played, and when the trainer worked meanwhile. The colours within a
// rollout show shares of its time, not an order, because the order is not recorded.
func timeline(dir string, step int, groups [][]record.Played) (template.HTML, error) {
	var all []record.Played
	for _, g := range groups {
		for _, p := range g {
			if !p.Ended.IsZero() {
				all = append(all, p)
			}
		}
	}
	if len(all) == 0 {
		return "", nil
	}
	all = all[:min(len(all), maxRows)]
	slices.SortFunc(all, func(a, b record.Played) int {
		return cmp.Or(began(a).Compare(began(b)), a.Ended.Compare(b.Ended))
	})
	from := began(all[0])
	to := slices.MaxFunc(all, func(a, b record.Played) int { return a.Ended.Compare(b.Ended) }).Ended
	points, err := metrics.ReadJSONL(filepath.Join(dir, record.MetricsFile))
	if err != nil {
		return "", err
	}
	trained := trainerTimes(points, step, from)
	for _, r := range trained {
		if r.step == step && r.to.After(to) {
			to = r.to
		}
	}
	span := max(to.Sub(from).Seconds(), 1e-9)
	x := func(t time.Time) float64 { return max(0, min(1, t.Sub(from).Seconds()/span)) * timelineWidth }
	height := trainerHeight*2 + rowHeight*float64(len(all))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="timeline">`, timelineWidth, height)
	for _, r := range trained {
		if w := x(r.to) - x(r.from); w > 0 {
			block(&b, r.class, x(r.from), 0, w, trainerHeight,
				fmt.Sprintf("trainer, step %d: %s", r.step, plot.Duration(r.to.Sub(r.from).Seconds())))
		}
	}
	for i, p := range all {
		drawRollout(&b, p, x(began(p)), trainerHeight*2+rowHeight*float64(i), x(p.Ended)-x(began(p)))
	}
	fmt.Fprintf(&b, `</svg><div class="ends"><span>0 s</span><span>%s</span></div>`, plot.Duration(span))
	return template.HTML(b.String()), nil
}

// trainerTime is a time in which the trainer worked for a step.
type trainerTime struct {
	from, to time.Time
	step     int
	class    string
}

// trainerTimes returns the trainer's times of a step, and of other steps that ended after a time.
func trainerTimes(points []metrics.Point, step int, after time.Time) (all []trainerTime) {
	for _, p := range points {
		seconds := func(name string) time.Duration { return time.Duration(p.Values[name] * float64(time.Second)) }
		published := p.Time.Add(-seconds("time/evaluate")) // without overlap, a point is recorded after the validation
		updated := published.Add(-seconds("time/publish"))
		began := updated.Add(-seconds("time/update"))
		if _, ok := p.Values["time/update"]; !ok || published.Before(after) && p.Step != step {
			continue
		}
		all = append(all, trainerTime{began, updated, p.Step, "c2"}, trainerTime{updated, published, p.Step, "c3"})
	}
	return all
}

// drawRollout draws what a rollout spent its time on, in a row of the given width.
func drawRollout(b *strings.Builder, p record.Played, x, y, width float64) {
	t := p.Times
	for _, part := range []struct {
		name, class string
		seconds     float64
	}{
		{"waiting", "c1", t.Queue}, {"model", "c0", t.Model}, {"environment", "c2", t.Environment},
		{"reward", "c3", t.Reward}, {"other", "c5", t.Other()},
	} {
		w := width * min(1, part.seconds/max(t.Total, 1e-9))
		if w <= 0 {
			continue
		}
		block(b, part.class, x, y, w, rowHeight-1,
			fmt.Sprintf("%s #%d, %s: %s", p.Task, p.Attempt, part.name, plot.Duration(part.seconds)))
		x += w
	}
}

// block draws a rectangle with a tooltip.
func block(b *strings.Builder, class string, x, y, width, height float64, title string) {
	fmt.Fprintf(b, `<rect class="dot %s" x="%.1f" y="%.1f" width="%.2f" height="%g"><title>%s</title></rect>`, class, x, y,
		width, height, template.HTMLEscapeString(title))
}

// began returns when a rollout was started.
func began(p record.Played) time.Time {
	return p.Ended.Add(-time.Duration(p.Times.Total * float64(time.Second)))
}
