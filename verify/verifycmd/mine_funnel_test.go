package verifycmd

import (
	"testing"

	"deepswe/verify/mine"
)

// A stage of the funnel is wrapped at 80 columns.
func TestStage(t *testing.T) {
	t.Parallel()
	lost := []mine.Count{{Of: "no test runs and passes, even with the change", N: 30}, {Of: "changes no tests", N: 1}}
	const want = "candidates    48   30 no test runs and passes, even with the change; 1 changes\n" +
		"                   no tests\n"
	if got := stage("candidates", 48, lost); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := stage("sound", 3, nil); got != "sound          3\n" {
		t.Errorf("%q", got)
	}
}
