package agentcmd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"deepswe/agent/cli"
)

// raced shows what one of several attempts is doing; a line stays for one that has ended.
func (s *screen) raced(r raced) {
	text := cli.Plain(r.Text)
	if r.Attempt < 0 {
		for _, l := range cli.Wrap(text, s.Width()-1) {
			s.Line(s.styles.dim.Render(l))
		}
		return
	}
	for len(s.race) <= r.Attempt {
		s.race = append(s.race, "")
	}
	s.race[r.Attempt] = text
	if r.Ended {
		s.race[r.Attempt] = ""
		label := fmt.Sprintf("#%-2d ", r.Attempt)
		for _, l := range cli.Wrap(text, s.Width()-5) {
			s.Line(label + l)
			label = "    "
		}
	}
}

// chosen shows why one of several attempts was chosen, and why the others were not.
func (s *screen) chosen(c *cli.RaceResult) {
	if c == nil {
		return
	}
	line := func(label, text string) {
		for _, l := range cli.Wrap(cli.Plain(text), s.Width()-12) {
			s.labelled(label, l)
			label = ""
		}
	}
	label, which := "chosen", fmt.Sprintf("#%d of %d: ", c.Winner, c.Attempts)
	for reason := range strings.SplitSeq(c.Reason, "; ") {
		line(label, which+reason)
		label, which = "", ""
	}
	for _, i := range slices.Sorted(maps.Keys(c.Losers)) {
		line("", fmt.Sprintf("not #%d: %s", i, c.Losers[i]))
	}
	s.labelled("ranking", c.Report)
}

// mostRacers is how many attempts have a live line each.
const mostRacers = 12

// racers returns the live lines of the running attempts.
func (s *screen) racers(width int) []string {
	var lines []string
	running := 0
	for i, text := range s.race {
		if text == "" {
			continue
		}
		if running++; running <= mostRacers {
			lines = append(lines, s.styles.dim.Render(cli.Cut(fmt.Sprintf("#%-2d %s", i, text), width-1)))
		}
	}
	summary := fmt.Sprintf("%s  %s under way", cli.Clock(time.Since(s.began)), cli.Plural(running, "attempt"))
	if running == 0 {
		summary = cli.Clock(time.Since(s.began)) + "  choosing"
	}
	return append(lines, s.styles.dim.Render(cli.Cut(summary, width-1)))
}
