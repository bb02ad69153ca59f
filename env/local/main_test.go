//go:build linux

package local_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"deepswe/env/guest"
	"deepswe/env/guest/inside"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		os.Exit(inside.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	if kind := os.Getenv("DEEPSWE_TEST_VICTIM"); kind != "" {
		fmt.Fprintln(os.Stderr, victim(kind, os.Getenv("DEEPSWE_TEST_SCRATCH"), os.Getenv("DEEPSWE_TEST_SOURCE")))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
