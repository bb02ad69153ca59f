package harness

import (
	"cmp"
	"strings"

	"deepswe/verify/testlog"
)

// Tier says how certain it is that the environment caused a failure.
type Tier string

// The tiers.
const (
	// Environment: a change of source code cannot have caused the failure.
	Environment Tier = "environment"
	// Ambiguous: either a broken environment or a bad patch may have caused it.
	Ambiguous Tier = "ambiguous"
)

// Infra is a class of environment failures, with the harness's name for it.
type Infra struct {
	Reason string
	Tier   Tier
}

// signatures are tried in this order. A log belongs to a class if it contains one of its texts or matches returns
// true.
var signatures = []struct {
	reason  string
	tier    Tier // Environment if empty
	texts   []string
	matches func(text string) bool
}{
	{reason: "browser_launch_failed", texts: []string{"Failed to launch", "Failed to connect to the bus"}},
	{reason: "display_unavailable", texts: []string{
		"cannot open display", "Missing X server", "unable to open X display",
	}},
	{reason: "out_of_memory", texts: []string{"Cannot allocate memory", "OutOfMemoryError"}, matches: killed},
	{
		reason: "container_unavailable",
		texts:  []string{"Error response from daemon", "Cannot connect to the Docker daemon"},
	},
	{reason: "network_unreachable", texts: []string{"Could not resolve host", "Temporary failure in name resolution"}},
	{
		reason: "missing_module", tier: Ambiguous,
		texts: []string{"Cannot find module", "MODULE_NOT_FOUND", "ModuleNotFoundError"},
	},
	{reason: "no_tests_collected", tier: Ambiguous, texts: []string{"no tests ran", "collected 0 items"}},
	{reason: "tests_timed_out", tier: Ambiguous, matches: timedOut().MatchString},
}

// timedOut matches what the harness appends to the log of a test run that it ended.
var timedOut = testlog.Pattern(`Timeout error: \d+ seconds exceeded`)

// killed matches the line that a shell prints about a command that the kernel killed.
func killed(text string) bool {
	return strings.Contains("\n"+text+"\n", "\nKilled\n")
}

// Classify returns the class of the environment failure that a decoded log shows; found is false if it shows none.
// The class is informative only: an unsolved task stays unsolved. Join several logs of a task with line feeds.
func Classify(text string) (class Infra, found bool) {
	for _, s := range signatures {
		class := Infra{s.reason, cmp.Or(s.tier, Environment)}
		for _, t := range s.texts {
			if strings.Contains(text, t) {
				return class, true
			}
		}
		if s.matches != nil && s.matches(text) {
			return class, true
		}
	}
	return Infra{}, false
}
