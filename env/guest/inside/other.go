//go:build !linux

package inside

import (
	"fmt"
	"io"
)

// Main refuses: sandboxes are Linux, and so are their guests. The client works everywhere.
func Main(_ []string, _ io.Reader, _ io.Writer, errOut io.Writer) int {
	fmt.Fprintln(errOut, "deepswe guest: a guest runs on Linux only")
	return 2
}
