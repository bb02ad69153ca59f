//go:build linux

package local_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"deepswe/env/guest"
	"deepswe/env/guest/inside"
	"deepswe/env/testkit"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		os.Exit(inside.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	if f := strings.Split(os.Getenv(victimEnv), ":"); len(f) == 4 {
		fmt.Fprintln(os.Stderr, victim{kind: f[0], scratch: f[1], source: f[2], mark: f[3]}.run())
		os.Exit(1)
	}
	testkit.Parallel(8)
	goleak.VerifyTestMain(m)
}
