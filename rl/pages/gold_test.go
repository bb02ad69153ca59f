package pages

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env/testkit"
)

// realGold is the solution in SWE-bench's record of astropy__astropy-12907.
const realGold = `diff --git a/astropy/modeling/separable.py b/astropy/modeling/separable.py
--- a/astropy/modeling/separable.py
+++ b/astropy/modeling/separable.py
@@ -242,7 +242,7 @@ def _cstack(left, right):
         cright = _coord_matrix(right, 'right', noutp)
     else:
         cright = np.zeros((noutp, right.shape[1]))
-        cright[-right.shape[0]:, -right.shape[1]:] = 1
+        cright[-right.shape[0]:, -right.shape[1]:] = right
 
     return np.hstack([cleft, cright])
`

// A task's page shows the solution from the dataset beside the attempts, but only when asked for.
func TestGoldPatch(t *testing.T) {
	t.Parallel()
	lines, err := os.ReadFile("../../env/dataset/testdata/records/swe-bench.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(lines), "\n")
	var record map[string]any
	if err := json.Unmarshal([]byte(first), &record); err != nil {
		t.Fatal(err)
	}
	record["instance_id"], record["patch"] = sampleTask(0), realGold
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	path := testkit.WriteFile(t, filepath.Join(t.TempDir(), "tasks.jsonl"), string(text))
	dir := sample{model: "m", tasks: 1, k: 1, flags: `,"tasks":"` + path + `"`}.write(t, filepath.Join(t.TempDir(), "run"))
	h, page := handler(t, dir), "/run/task?name="+sampleTask(0)
	if got := get(t, h, page, http.StatusOK); strings.Contains(got, "separable") || !strings.Contains(got, "Show it") {
		t.Error("the solution is shown before it is asked for, or cannot be asked for")
	}
	got := get(t, h, page+"&gold=1", http.StatusOK)
	for _, want := range []string{"astropy/modeling/separable.py</b>", `<i class="kn">1</i>`, `class="add">+        cright[`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing:\n%s", want, got[strings.Index(got, "Patches"):])
		}
	}
}
