package agentcmd

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// Every flag of solve belongs to a topic or to the few that the help shows at once.
func TestTopics(t *testing.T) {
	placed := usualFlags()
	for _, topic := range topics() {
		placed = append(placed, topic.flags...)
	}
	shown := 0
	solveCommand(Deps{}, new(solveOptions)).Flags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(placed, f.Name) {
			t.Errorf("--%s is in no topic, and not usual", f.Name)
		}
		if slices.Contains(usualFlags(), f.Name) {
			shown++
		}
	})
	if shown > 15 {
		t.Errorf("%d flags are shown at once", shown)
	}
}
