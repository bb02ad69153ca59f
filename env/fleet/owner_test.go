package fleet

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"deepswe/env/disk"
)

func TestOwner(t *testing.T) {
	t.Parallel()
	self := This()
	if back, ok := parseOwner(self.String()); !ok || back != self {
		t.Errorf("parseOwner(%q) = %v, %v", self, back, ok)
	}
	if back, ok := parseOwner(self.String() + "/some-provider"); !ok || back != self {
		t.Errorf("a provider of %q is of %v, %v", self, back, ok)
	}
	if back, ok := parseOwner(strings.ReplaceAll(self.String()+"/some-provider", "/", ".")); !ok || back != self {
		t.Errorf("with dots: %v, %v", back, ok)
	}
	for _, bad := range []string{"", "a", "a/b", "a/b/c", "a/0/c", "a/-1/c"} {
		if o, ok := parseOwner(bad); ok {
			t.Errorf("parseOwner(%q) = %v, want it refused", bad, o)
		}
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	kid := Owner{Machine: self.Machine}
	var err error
	if kid.Process, err = disk.FindProcess(child.Process.Pid); err != nil {
		t.Fatal(err)
	}
	recycled := kid
	recycled.Start++
	foreign := Owner{Machine: "elsewhere", Process: disk.Process{PID: 1, Start: 1}}
	check := func(name string, o Owner, want disk.Liveness) {
		t.Helper()
		if got := o.Liveness(); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	check("this process", self, disk.Alive)
	check("a child", kid, disk.Alive)
	check("another process with that number", recycled, disk.Dead)
	check("another machine", foreign, disk.Unknown)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for kid.Liveness() != disk.Dead { // a zombie counts as dead
		time.Sleep(time.Millisecond)
	}
	_ = child.Wait()
	check("a child that was waited for", kid, disk.Dead)
}
