package harness

import "testing"

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ log, reason string }{
		{"Error: Failed to launch the browser", "browser_launch_failed"},
		{"Failed to connect to the bus: x", "browser_launch_failed"},
		{"cannot open display: :0", "display_unavailable"},
		{"a\nKilled\nb", "out_of_memory"},
		{"Killed", "out_of_memory"},
		{"Killed process 7", ""},
		{" Killed", ""},
		{"java.lang.OutOfMemoryError: heap", "out_of_memory"},
		{"Error response from daemon: x", "container_unavailable"},
		{"curl: (6) Could not resolve host: x", "network_unreachable"},
		{"Error: Cannot find module 'x'", "missing_module"},
		{"no tests ran in 0.1s", "no_tests_collected"},
		{"\n\nTimeout error: 1800 seconds exceeded.", "tests_timed_out"},
		{"Timeout error: x seconds exceeded", ""},
		{"collected 0 items\nCannot allocate memory", "out_of_memory"},
		{"", ""},
	} {
		class, found := Classify(c.log)
		if class.Reason != c.reason || found != (c.reason != "") {
			t.Errorf("Classify(%q) = %v, %t, want %q", c.log, class, found, c.reason)
		}
	}
	if class, _ := Classify("ModuleNotFoundError"); class.Tier != Ambiguous {
		t.Errorf("a missing module is %s", class.Tier)
	}
	if class, _ := Classify("Killed"); class.Tier != Environment {
		t.Errorf("a killed process is %s", class.Tier)
	}
}
