package verifycmd

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/term"

	"deepswe/agent/agentcmd"
	"deepswe/env"
)

// progress shows people how far a run is: a line for everything that has ended and, on a terminal, one below them that
// keeps moving. A reader that goes away must not end a run, so that write errors are dropped.
type progress struct {
	out  io.Writer
	live bool
	what string // rollouts, evaluations
	now  func() time.Time

	mu      sync.Mutex
	began   time.Time
	total   int
	ended   int // in this session and before
	before  int // in sessions before
	running int
	solved  int
	failed  int
	tokens  int64
	pulls   map[string]env.Progress // that are under way, by host and image
	shown   bool

	stop chan struct{}
	done chan struct{}
}

// repaint is how often the live line moves.
const repaint = 200 * time.Millisecond

const clearRow = "\r\x1b[K"

func newProgress(out io.Writer, what string) *progress {
	p := &progress{out: out, what: what, now: time.Now, live: isTerminal(out), stop: make(chan struct{}), done: make(chan struct{})}
	p.began = p.now()
	go p.paint()
	return p
}

// isTerminal tells whether lines on w can be taken back.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

func (p *progress) paint() {
	defer close(p.done)
	if !p.live {
		<-p.stop
		return
	}
	tick := time.NewTicker(repaint)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// plan begins a part of the run: how many there are, and how many of them ended in an earlier session.
func (p *progress) plan(what string, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what, p.total, p.began = what, total, p.now()
	p.ended, p.before, p.running, p.solved, p.failed, p.tokens = 0, 0, 0, 0, 0, 0
}

// known counts one that ended in an earlier session.
func (p *progress) known(solved bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended++
	p.before++
	if solved {
		p.solved++
	}
}

func (p *progress) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running++
}

// add counts tokens as they are sampled and read.
func (p *progress) add(tokens int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens += int64(tokens)
}

// end counts one that has ended, and says what it came to.
func (p *progress) end(solved, failed bool, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	p.ended++
	if solved {
		p.solved++
	}
	if failed {
		p.failed++
	}
	if !p.live {
		text = "[" + p.status() + "] " + text
	}
	p.line(text)
}

// pull shows how a pull goes.
func (p *progress) pull(now env.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := now.Host + " " + now.Image
	if !now.Done {
		if p.pulls == nil {
			p.pulls = map[string]env.Progress{}
		}
		p.pulls[key] = now
		return
	}
	delete(p.pulls, key)
	if now.Err == nil { // whoever needs the image tells of an error
		p.line(agentcmd.Pulling(now))
	}
}

// note prints a line of its own.
func (p *progress) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(fmt.Sprintf(format, args...))
}

// line prints above the live line. The lock is held.
func (p *progress) line(text string) {
	if p.shown {
		fmt.Fprint(p.out, clearRow)
		p.shown = false
	}
	fmt.Fprintln(p.out, plain(text))
	p.draw()
}

// draw puts the live line on the screen. The lock is held.
func (p *progress) draw() {
	if !p.live || p.total == 0 {
		return
	}
	text := p.what + " " + p.status()
	if width, _, err := term.GetSize(int(p.out.(*os.File).Fd())); err == nil && width > 20 && len(text) >= width {
		text = text[:width-1]
	}
	fmt.Fprint(p.out, clearRow+text)
	p.shown = true
}

// status is the state of the run in a few words.
func (p *progress) status() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d/%d, %d running, %d solved", p.ended, p.total, p.running, p.solved)
	if p.failed > 0 {
		fmt.Fprintf(&b, ", %d failed", p.failed)
	}
	if p.tokens > 0 {
		fmt.Fprintf(&b, ", %s tokens", count(p.tokens))
	}
	if took, n := p.now().Sub(p.began), p.ended-p.before; n > 0 && took > 0 {
		rate := float64(n) / took.Minutes()
		fmt.Fprintf(&b, ", %.1f/min", rate)
		if left := p.total - p.ended; left > 0 {
			fmt.Fprintf(&b, ", %s left", clock(time.Duration(float64(left)/rate*float64(time.Minute))))
		}
	}
	var all env.Progress
	for _, pull := range p.pulls {
		all.Action, all.Image, all.Bytes, all.Total = pull.Action, pull.Image, all.Bytes+pull.Bytes, all.Total+pull.Total
	}
	if n := len(p.pulls); n > 1 {
		all.Action, all.Image = env.Pulling, fmt.Sprintf("%d images", n)
	}
	if all.Image != "" {
		b.WriteString(", " + agentcmd.Pulling(all))
	}
	return b.String()
}

// close takes the live line away.
func (p *progress) close() {
	close(p.stop)
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.out, clearRow)
	}
}

// clock is a time as people say it.
func clock(d time.Duration) string {
	d = d.Round(time.Second)
	if d >= time.Hour {
		return fmt.Sprintf("%d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// count is a large number as people say it.
func count(n int64) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	case n >= 1000:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}

// plain replaces what could steer a terminal: texts of tasks and of tests are not ours.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '·'
		}
		return r
	}, s)
}
