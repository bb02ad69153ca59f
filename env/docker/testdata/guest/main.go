// Command guest is the guest and nothing else: the tests' stand-in for the deepswe binary, which a test binary cannot be
// where the race detector makes it a dynamic one.
package main

import (
	"os"

	"deepswe/env/guest"
	"deepswe/env/guest/inside"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != guest.Arg {
		os.Exit(2)
	}
	os.Exit(inside.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
}
