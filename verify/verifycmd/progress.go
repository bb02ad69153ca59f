package verifycmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env"
)

// progress shows people how far a run is: a line for everything that has ended and, on a terminal, a live one below
// them.
type progress struct {
	*cli.Screen        // its lock guards what follows
	what        string // rollouts, evaluations

	began   time.Time
	total   int
	ended   int // in this session and before
	before  int // in sessions before
	running int
	solved  int
	graded  bool // jobs solve their task or not
	failed  int
	tokens  int64
	pulls   map[string]env.Progress // running pulls, by host and image
}

func newProgress(out io.Writer, what string) *progress {
	p := &progress{Screen: cli.ScreenOf(out), what: what, began: time.Now(), pulls: map[string]env.Progress{}}
	p.Show(p.draw)
	return p
}

// observeEvent shows an event of the named job. again describes what follows a failure ("trying again"). ended returns
// whether a finished job solved its task, nil for a job that has no task to solve, and a description.
func (p *progress) observeEvent(e run.Event, name, again string, ended func() (solved *bool, text string)) {
	switch e.Kind {
	case run.Started:
		p.start()
	case run.Retrying:
		p.note("%s: %v; %s in %s", name, e.Err, again, e.Delay.Round(time.Second))
	case run.Finished:
		solved, text := ended()
		p.end(solved, false, name+": "+text)
	case run.Failed:
		p.end(nil, true, name+": failed: "+e.Outcome.Err)
	case run.Released:
	}
}

// plan begins a part of the run, with its name and its number of jobs.
func (p *progress) plan(what string, total int) {
	p.Lock()
	defer p.Unlock()
	p.what, p.total, p.began = what, total, time.Now()
	p.ended, p.before, p.running, p.solved, p.failed, p.tokens, p.graded = 0, 0, 0, 0, 0, 0, false
}

// known counts a job that ended in an earlier session. solved is nil for a job that has no task to solve.
func (p *progress) known(solved *bool) {
	p.Lock()
	defer p.Unlock()
	p.ended++
	p.before++
	p.graded = p.graded || solved != nil
	if solved != nil && *solved {
		p.solved++
	}
}

func (p *progress) start() {
	p.Lock()
	defer p.Unlock()
	p.running++
}

// add counts tokens as they are sampled and read.
func (p *progress) add(tokens int) {
	p.Lock()
	defer p.Unlock()
	p.tokens += int64(tokens)
}

// end counts a job that has ended, and prints how.
func (p *progress) end(solved *bool, failed bool, text string) {
	p.Lock()
	defer p.Unlock()
	p.running--
	p.ended++
	p.graded = p.graded || solved != nil
	if solved != nil && *solved {
		p.solved++
	}
	if failed {
		p.failed++
	}
	if !p.Live() {
		text = "[" + p.status() + "] " + text
	}
	p.Line(cli.Plain(text))
}

// pull shows the progress of a pull or a build.
func (p *progress) pull(now env.Progress) {
	p.Lock()
	defer p.Unlock()
	key := now.Host + " " + now.Image
	if !now.Done {
		p.pulls[key] = now
		return
	}
	delete(p.pulls, key)
	if now.Err == nil && now.Action != env.Waiting { // an error is reported by what needs the image
		p.Line(cli.Plain(cli.Pulling(now)))
	}
}

// note prints a permanent line.
func (p *progress) note(format string, args ...any) {
	p.Lock()
	defer p.Unlock()
	p.Line(cli.Plain(fmt.Sprintf(format, args...)))
}

// draw is the live line.
func (p *progress) draw(width int) []string {
	if p.total == 0 {
		return nil
	}
	return []string{cli.Cut(cli.Plain(p.what+" "+p.status()), width-1)}
}

// status is the state of the run in a few words.
func (p *progress) status() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d/%d, %d running", p.ended, p.total, p.running)
	if p.graded {
		fmt.Fprintf(&b, ", %d solved", p.solved)
	}
	if p.failed > 0 {
		fmt.Fprintf(&b, ", %d failed", p.failed)
	}
	if p.tokens > 0 {
		fmt.Fprintf(&b, ", %s tokens", cli.Count(p.tokens))
	}
	// The first to end are the quickest, so a rate is shown once as many have ended as are running.
	if took, n := time.Since(p.began), p.ended-p.before; n > 0 && n >= p.running && took > 0 {
		rate := float64(n) / took.Minutes()
		fmt.Fprintf(&b, ", %.1f/min", rate)
		if left := p.total - p.ended; left > 0 {
			fmt.Fprintf(&b, ", %s left", cli.Clock(time.Duration(float64(left)/rate*float64(time.Minute))))
		}
	}
	var all env.Progress
	images := 0
	for _, pull := range p.pulls {
		if pull.Action == env.Waiting {
			b.WriteString(", " + cli.Pulling(pull))
			continue
		}
		images++
		all.Action, all.Image, all.Bytes, all.Total = pull.Action, pull.Image, all.Bytes+pull.Bytes, all.Total+pull.Total
	}
	if images > 1 {
		all.Action, all.Image = env.Pulling, fmt.Sprintf("%d images", images)
	}
	if all.Image != "" {
		b.WriteString(", " + cli.Pulling(all))
	}
	return b.String()
}

// close wipes the live line. A screen that has gone away does not end a run.
func (p *progress) close() { _ = p.Close(false) }
