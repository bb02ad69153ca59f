package agent

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// signature identifies the calls of one reply and their results.
type signature [sha256.Size]byte

// sign hashes calls and results, without the parts of a result that vary between runs, such as durations.
func sign(results []callResult) signature {
	h := sha256.New()
	write := func(s string) { fmt.Fprintf(h, "%d:%s", len(s), s) }
	for _, c := range results {
		write(c.action.Call.Name)
		for _, key := range slices.Sorted(maps.Keys(c.action.Call.Args)) {
			write(key)
			write(c.action.Call.Args[key])
		}
		write(steady(c.result.Output))
	}
	return signature(h.Sum(nil))
}

// volatile matches what differs between two identical runs of a command: times, durations, addresses, names of
// temporary files.
var volatile = regexp.MustCompile(
	`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?` + // a time stamp
		`|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b` +
		`|\b\d+(?:\.\d+)?\s?(?:ns|µs|us|ms|s|secs?|seconds?|minutes?|min)\b` + // a duration
		`|\b0x[0-9a-fA-F]{6,}\b` + // an address
		`|/tmp/[\w.+-]*\d[\w.+-]*`) // a temporary file with a number in its name

// steady replaces the volatile parts of a tool's output.
func steady(output string) string { return volatile.ReplaceAllString(output, "~") }

// sameOutput compares two outputs of a command, except for volatile parts.
func sameOutput(a, b string) bool { return a == b || steady(a) == steady(b) }

// repetition detects a model that repeats itself: the same calls with the same results several times in a row, or a
// cycle of two or three replies.
type repetition struct {
	seen []signature
}

// longestCycle is the longest cycle that is detected, in replies.
const longestCycle = 3

// add adds the next signature. It returns how often its cycle has been repeated, and the cycle's length in replies.
func (r *repetition) add(s signature) (times, length int) {
	r.seen = append(r.seen, s)
	times, length = 1, 1
	for n := 1; n <= longestCycle; n++ {
		same := 0
		for i := len(r.seen) - 1; i >= n && r.seen[i] == r.seen[i-n]; i-- {
			same++
		}
		if cycles := same/n + 1; cycles > times {
			times, length = cycles, n
		}
	}
	return times, length
}
