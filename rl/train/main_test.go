package train

import (
	"os"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"

	"deepswe/env/guest"
	"deepswe/env/guest/inside"
)

// TestMain lets the test binary be a process that gets killed: see kill_test.go.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		os.Exit(inside.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr)) // sandboxes execute this binary, too
	}
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(trainChild(dir))
	}
	debug.SetGCPercent(400) // the tests allocate much that is garbage at once
	goleak.VerifyTestMain(m)
}
