package verify

import (
	"fmt"
	"slices"
	"strings"

	"deepswe/verify/telltale"
)

// Telltale means that the patch adds code that forged results need, and fixes seldom do. It says which patches to look
// at, and lowers no reward.
const Telltale SuspicionKind = "telltale"

// mostTelltales is the maximum number of telltales that are listed for a patch.
const mostTelltales = 20

// telltales returns the telltales in the changes that the strict trial takes, except for those that the task's solution
// has as well.
func (t *trial) telltales(changes []change) (found []Suspicion) {
	finder := telltale.New()
	for _, c := range changes {
		if slices.ContainsFunc(t.v.Withheld, func(w Withheld) bool { return w.Path == c.before.name }) {
			continue
		}
		for _, f := range finder.Added(c.after.name, c.before.data, c.after.data) {
			if len(found) < mostTelltales && !strings.Contains(t.task.Tests.GoldPatch, f.What) {
				found = append(found, Suspicion{Telltale, fmt.Sprintf("%s:%d: %s (%s)", c.after.name, f.Line, f.What, f.Rule)})
			}
		}
	}
	return found
}
