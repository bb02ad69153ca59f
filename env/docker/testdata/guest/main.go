// Command guest is the guest and nothing else. Tests use it in place of the deepswe binary: under the race detector, a
// test binary is dynamically linked and cannot run in every image.
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
