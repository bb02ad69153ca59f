//go:build linux && !amd64 && !arm64

package inside

// filterSystemCalls does nothing where nobody has tried the filter: the other walls stand.
func filterSystemCalls(_, _ bool) error { return nil }
