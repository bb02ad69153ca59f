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
	// Environment failures cannot be caused by a change of source code.
	Environment Tier = "environment"
	// Ambiguous ones can be caused by a broken environment as well as by a bad patch.
	Ambiguous Tier = "ambiguous"
)

// Infra is a class of failures of the environment, named as the harness names it.
type Infra struct {
	Reason string
	Tier   Tier
}

// signatures are tried in this order. A log is of the class if it contains one of the texts or matches.
var signatures = []struct {
	reason  string
	tier    Tier // Environment when empty
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

// timedOut is what the harness itself appends to the log of a test run that it ended.
var timedOut = testlog.Pattern(`Timeout error: \d+ seconds exceeded`)

// killed looks for the line that a shell prints about a command that the kernel ended.
func killed(text string) bool {
	return strings.Contains("\n"+text+"\n", "\nKilled\n")
}

// Classify names the failure of the environment that a decoded log shows; found is false where it shows none. It is
// advice: an unsolved task stays unsolved. Several logs of one task are joined by a line feed.
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
