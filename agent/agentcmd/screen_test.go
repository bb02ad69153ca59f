package agentcmd

import (
	"bytes"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"
	"github.com/muesli/termenv"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/env/testkit"
	"deepswe/tools"
)

func colours(p termenv.Profile) styles {
	r := lipgloss.NewRenderer(io.Discard)
	r.SetColorProfile(p)
	return newStyles(r)
}

const wipe = "\r\x1b[J"

// The golden files show what people see of a rollout, in a pipe and on terminals.
func TestScreen(t *testing.T) {
	for name, c := range map[string]struct {
		width  int
		live   bool
		styles styles
	}{
		"pipe":        {80, false, colours(termenv.Ascii)},
		"colour":      {80, false, colours(termenv.ANSI)},
		"terminal-40": {40, true, colours(termenv.Ascii)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out, err bytes.Buffer
				on := cli.NewScreenOn(&err, cli.Terminal{Live: c.live, Width: func() int { return c.width }})
				s := newScreen(&out, c.live, on, c.styles)
				if err := rollout(s); err != nil {
					t.Fatal(err)
				}
				if out.String() != "diff --git a/compare.go b/compare.go\n" {
					t.Errorf("standard output is %q", out.String())
				}
				testkit.Golden(t, "testdata/screen-"+name+".golden", visible(t, err.String()))
				for line := range strings.Lines(visible(t, err.String())) {
					words := strings.TrimSuffix(line, "\n")
					if w := ansi.StringWidth(words); w > c.width && strings.Contains(words[:5], "+") {
						t.Errorf("%d columns: %s", w, words)
					}
				}
			})
		})
	}
}

// visible returns what is left on a terminal: a live line is erased before the next line replaces it.
func visible(t *testing.T, s string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(s) {
		if i := strings.LastIndex(line, wipe); i >= 0 {
			line = line[i+len(wipe):]
		}
		if strings.ContainsAny(line, "\r\a\b") {
			t.Errorf("%q steers the terminal", line)
		}
		b.WriteString(line)
	}
	return b.String()
}

// The live line says what is happening and for how long, follows the terminal's width, and leaves nothing behind.
func TestLiveLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var width atomic.Int64
		width.Store(80)
		on := cli.NewScreenOn(&out, cli.Terminal{Live: true, Width: func() int { return int(width.Load()) }})
		s := newScreen(io.Discard, false, on, colours(termenv.Ascii))
		shows := func(want string) {
			t.Helper()
			synctest.Wait()
			s.Lock()
			defer s.Unlock()
			text := visible(t, out.String())
			if got := text[strings.LastIndex(text, "\n")+1:]; got != want {
				t.Errorf("shows %q, want %q", got, want)
			}
		}
		s.show(started{Task: "x", Model: "m", Sandbox: "host", MaxSteps: 100})
		s.show(attempt.PhaseSandbox)
		shows("0:00  starting the sandbox")
		s.show(agent.Event{Kind: agent.EventStep, Step: 1})
		s.show(agent.Event{Kind: agent.EventText, Step: 1, Text: "It seems\nto be the comparison of "})
		s.show(agent.Event{Kind: agent.EventText, Step: 1, Text: "pre-releases \x1b[2Jthat goes wrong, and 日本語"})
		time.Sleep(3 * time.Second)
		shows("0:03  step 1/100  thinking  …on of pre-releases ·[2Jthat goes wrong, and 日本語")
		width.Store(40)
		time.Sleep(100 * time.Millisecond)
		shows("0:03  step 1/100  thinking  …and 日本語")
		s.show(agent.Event{Kind: agent.EventReply, Step: 1, Usage: &agent.Usage{Prompt: 900, Completion: 100}})
		s.show(agent.Event{Kind: agent.EventCall, Step: 1, Call: &tools.Call{Name: "execute_bash",
			Args: map[string]string{"cmd": "sleep 60; echo done"}}})
		time.Sleep(10 * time.Second)
		shows("0:13  step 1/100  execute_bash s…  0:10")
		width.Store(80)
		time.Sleep(100 * time.Millisecond)
		shows("0:13  step 1/100  1.0k tokens  execute_bash sleep 60; echo done  0:10")
		if err := s.finish(outcome{}); err != nil {
			t.Fatal(err)
		}
		shows("")
	})
}

// Messages about the choice among attempts are not shortened, whatever the width.
func TestRaceIsWhole(t *testing.T) {
	var out bytes.Buffer
	on := cli.NewScreenOn(&out, cli.Terminal{Width: func() int { return 40 }})
	s := newScreen(io.Discard, false, on, colours(termenv.Ascii))
	s.show(raced{Attempt: -1, Text: "cost of choosing: 4 requests to the judge, 1 run of the base", Ended: true})
	s.show(raced{Attempt: 3, Text: "failed: start a sandbox: the daemon at /run/docker.sock is gone", Ended: true})
	s.chosen(&cli.RaceResult{
		Winner: 1, Attempts: 2, Reason: "most regression tests pass; 1 of 2 candidates agree", Report: "rank/report.html",
		Losers: map[int]string{0: "3 regression tests pass, and 4 with the chosen one"},
	})
	testkit.Golden(t, "testdata/race-40.golden", out.String())
}

func TestWords(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{spoken("<think>no\n</think>yes\n<function=finish>"), "yes"},
		{spoken("<function=finish>"), ""},
		{seenFrom("/testbed", "/testbed/a/b"), "a/b"},
		{seenFrom("/testbed", "/testbed"), "."},
		{seenFrom("", "/a"), "/a"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
