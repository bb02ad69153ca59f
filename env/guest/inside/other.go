//go:build !linux

package inside

import (
	"fmt"
	"io"
)

// Main fails: guests run on Linux only. The client works on every platform.
func Main(_ []string, _ io.Reader, _ io.Writer, errOut io.Writer) int {
	fmt.Fprintln(errOut, "deepswe guest: a guest runs on Linux only")
	return 2
}
