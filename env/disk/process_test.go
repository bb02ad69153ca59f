package disk

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"
)

func TestParseStat(t *testing.T) {
	tail := " 4 3 2 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 1 2"
	for _, name := range []string{"bash", "a b", ") R 1 1 1 (", "((", "))", "", "\n", "x) Z 0"} {
		got, ok := parseStat([]byte("9 (" + name + ") S" + tail + "\n"))
		if want := (Stat{Parent: 4, Session: 2, State: 'S', Start: 12345}); !ok || got != want {
			t.Errorf("%q: %+v, %v", name, got, ok)
		}
	}
	for _, bad := range []string{"", "9", "9 (x", "9 (x) S 1 2", "9 (x) S x" + tail[2:]} {
		if s, ok := parseStat([]byte(bad)); ok {
			t.Errorf("%q: %+v", bad, s)
		}
	}
}

// needProc skips the test where the system does not tell when a process was started.
func needProc(t *testing.T) Owner {
	t.Helper()
	me := Self()
	if me.Start == 0 || me.Boot == "" || me.Namespace == "" {
		t.Skip("needs /proc")
	}
	return me
}

func TestReadStat(t *testing.T) {
	needProc(t)
	if s, err := ReadStat(os.Getpid()); err != nil || s.PID != os.Getpid() || s.Parent != os.Getppid() || !s.Alive() {
		t.Errorf("this process: %+v, %v", s, err)
	}
	if s, err := ReadStat(1<<22 + 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: %+v, %v", s, err)
	}
}

func TestOnlyCertainDeathCounts(t *testing.T) {
	me := needProc(t)
	other := func(change func(*Owner)) Owner {
		o := me
		change(&o)
		return o
	}
	for what, c := range map[string]struct {
		owner Owner
		want  Liveness
	}{
		"the same process":              {me, Alive},
		"a boot that begins like this":  {other(func(o *Owner) { o.Boot = o.Boot[:8] }), Alive},
		"another boot":                  {other(func(o *Owner) { o.Boot = "22222222" }), Dead},
		"another namespace":             {other(func(o *Owner) { o.Namespace, o.PID = "pid:[1]", 1<<22+1 }), Unknown},
		"a number that was given again": {other(func(o *Owner) { o.Start *= 10 }), Dead},
		"a number that nobody has":      {other(func(o *Owner) { o.PID = 1<<22 + 1 }), Dead},
		"an unknown start":              {other(func(o *Owner) { o.Start = 0 }), Unknown},
		"an unknown boot":               {other(func(o *Owner) { o.Boot, o.PID = "", 1<<22+1 }), Unknown},
	} {
		if got := c.owner.Liveness(me); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

func TestAChildsEnd(t *testing.T) {
	needProc(t)
	child := exec.Command("cat") // until its input ends
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := FindProcess(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Liveness(); got != Alive {
		t.Errorf("a child: %v", got)
	}
	input.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := p.Liveness(); got != Dead {
		t.Errorf("a child that has ended: %v", got)
	}
	if p, err := FindProcess(p.PID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("found %+v, %v", p, err)
	}
}

func TestOwnersName(t *testing.T) {
	me := Self()
	for _, o := range []Owner{me, {Process: Process{PID: 7}}} {
		back, ok := parseOwner(o.String())
		if o.Boot != "" {
			o.Boot = o.Boot[:8]
		}
		if !ok || back != o {
			t.Errorf("parseOwner(%q) = %+v, %v", o, back, ok)
		}
	}
	for _, bad := range []string{"", "1.2.3", "1.2.3.4.5", "g.2.3.4", ".2.3.4", "1..3.4", "1.x.3.4", "1.2.0.4", "1.2.-3.4",
		"1.2.3.x"} {
		if o, ok := parseOwner(bad); ok {
			t.Errorf("parseOwner(%q) = %+v", bad, o)
		}
	}
}
