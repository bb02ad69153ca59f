package agentcmd

import (
	"os"
	"testing"

	"deepswe/env/guest"
	"deepswe/env/guest/inside"
	"deepswe/env/testkit"
)

func TestMain(m *testing.M) {
	// The host sandbox executes this binary as its guest.
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		os.Exit(inside.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	testkit.Main(m)
}
