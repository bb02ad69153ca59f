package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Whatever is written appears above the live lines, which are redrawn when their content changes.
func TestScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		s := NewScreenOn(&b, Terminal{Live: true})
		n := 1
		s.Show(func(int) []string {
			lines := []string{"one", "two", "three"}
			return lines[:n]
		})
		NewLog(s).Warn("look")
		s.Lock()
		n = 3
		s.Unlock()
		time.Sleep(repaint)
		synctest.Wait()
		Say(s, "again")
		if err := s.Close(true); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(s, "the end")
		want := "deepswe: warning: look\none" + wipe + "one\ntwo\nthree" +
			"\x1b[2A" + wipe + "deepswe: again\none\ntwo\nthree" + "\x1b[2A" + wipe + "one\ntwo\nthree\nthe end\n"
		if b.String() != want {
			t.Errorf("got\n%q\nwant\n%q", b.String(), want)
		}
	})
}

// Nothing is redrawn in a pipe.
func TestScreenInAPipe(t *testing.T) {
	var b strings.Builder
	s := NewScreen(&b)
	s.Show(func(int) []string { return []string{"live"} })
	fmt.Fprintln(s, "a line")
	if err := s.Close(true); err != nil || b.String() != "a line\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	if ScreenOf(s) != s {
		t.Error("a screen on a screen")
	}
}

type closed struct{ writes int }

func (c *closed) Write([]byte) (int, error) {
	c.writes++
	return 0, errors.New("closed")
}

// After the first failed write, nothing more is written, neither lines nor JSON.
func TestOutputEnds(t *testing.T) {
	w := &closed{}
	s := NewScreen(w)
	fmt.Fprintln(s, "a")
	if _, err := fmt.Fprintln(s, "b"); err == nil || w.writes != 1 {
		t.Errorf("%d writes, %v", w.writes, err)
	}
	w = &closed{}
	lines := NewJSONLines(w)
	if lines.Print(1) == nil || lines.Print(2) == nil || lines.Err() == nil || w.writes != 1 {
		t.Errorf("%d writes of JSON", w.writes)
	}
}

func TestRunDir(t *testing.T) {
	t.Setenv("TMPDIR", "/tmp/of-mine")
	for want, vars := range map[string]map[string]string{
		"/state/deepswe/runs/1":                                    {"XDG_STATE_HOME": "/state", "HOME": "/home/u"},
		"/home/u/.local/state/deepswe/runs/1":                      {"HOME": "/home/u"},
		fmt.Sprintf("/tmp/of-mine/deepswe-%d/runs/1", os.Getuid()): {},
	} {
		if got := (World{Getenv: environment(vars)}).RunDir("1"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) { // whose clock begins in the year 2000
		var w World
		time.Sleep(4*time.Hour + 5*time.Minute + 6*time.Second)
		if a, b := w.RunID(), w.RunID(); a == b || !strings.HasPrefix(a, "20000101-040506-") ||
			len(a) != len("20000101-040506-abcdef") {
			t.Errorf("run ids %s and %s", a, b)
		}
	})
}

func TestLogIsForPeople(t *testing.T) {
	var b bytes.Buffer
	log := NewLog(&b).With("host", "gpu\x1b[2J")
	log.Info("nobody wants to know")
	log.Warn("trying again", "status", 0, "error", errors.New("refused\nreally"), "attempt", 2, "wait",
		126133285*time.Nanosecond)
	log.WithGroup("x").Error("given up", slog.Any("nothing", nil), slog.String("empty", ""))
	want := "deepswe: warning: trying again (host gpu·[2J, error refused·really, attempt 2, wait 130ms)\n" +
		"deepswe: error: given up (host gpu·[2J)\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}

func TestVisible(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"+plain\ttext\r\nμ 日本 é\n":        "+plain\ttext\r\nμ 日本 é\n",
		"\x1b]0;TITLE\a\x1b[2J":           "^[]0;TITLE^G^[[2J",
		"a\rb\x00\x7f\b":                  "a^Mb^@^?^H",
		"\u009b31m\x9b31m":                "<U+009B>31m<9B>31m",
		"\u202egnp.exe\u2066\u200b\ufeff": "<U+202E>gnp.exe<U+2066><U+200B><U+FEFF>",
	} {
		if got := string(Visible([]byte(said))); got != want {
			t.Errorf("%q is shown as %q, want %q", said, got, want)
		}
	}
}

// A writer that is not a terminal gets the bytes unchanged.
func TestWriteText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	const patch = "+\x1b[2J\xff\n"
	if err := WriteText(&out, []byte(patch)); err != nil || out.String() != patch {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestFit(t *testing.T) {
	var out bytes.Buffer
	screen := NewScreenOn(&out, Terminal{Live: true, Width: func() int { return 20 }})
	long := "https://a.very.long/address"
	for text, want := range map[string]string{
		"short":                              "short",
		"the server at " + long + " is gone": "the server at\n" + long + "\nis gone",
		"to fix: export A=b and then go on":  "to fix: export A=b and then go on",
		"  deepswe solve 'what is wrong'":    "  deepswe solve 'what is wrong'",
		"ein Gerät, das nicht antwortet":     "ein Gerät, das\nnicht antwortet",
	} {
		if got := Fit(screen, text); got != want {
			t.Errorf("Fit(%q) = %q, want %q", text, got, want)
		}
		if got := Fit(&out, text); got != text {
			t.Errorf("in a pipe, Fit(%q) = %q", text, got)
		}
	}
}
