package mine

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env/testkit"
)

// Tests with the same title in different suites are different tests, whatever their titles end with. Of those with the
// same name, the one that fails comes last.
func TestReportOfJest(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		testkit.Skip(t, "node", err)
	}
	dir := t.TempDir()
	report := testkit.WriteFile(t, filepath.Join(dir, "tests.json"), strings.ReplaceAll(`{"testResults": [
  {"name": "DIR/test/a.test.ts", "assertionResults": [
    {"ancestorTitles": ["", "sums"], "title": "of 1 and 2", "status": "failed"},
    {"ancestorTitles": ["", "sums"], "title": "of 1 and 3", "status": "passed"},
    {"ancestorTitles": ["sums", "of none"], "title": "in\ntwo lines", "status": "passed"},
    {"ancestorTitles": ["sums"], "title": "left out", "status": "pending"}
  ]},
  {"name": "DIR/test/b.test.ts", "assertionResults": [
    {"title": "of 1 and 2", "status": "failed"},
    {"title": "of 1 and 2", "status": "passed"}
  ]},
  {"name": "DIR/test/c.test.ts", "assertionResults": []}
]}`, "DIR", dir))
	for _, command := range []string{
		"npx --no-install jest --verbose test/a.test.ts", "npx --no-install vitest run --reporter=verbose test/a.test.ts",
	} {
		how, ok := readable(command)
		if !ok {
			t.Fatalf("%s cannot be read", command)
		}
		line := how.command(command)
		if !strings.Contains(line, " --outputFile=/tmp/tests.json ") {
			t.Errorf("no report is written by %s", line)
		}
		c := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(how.report, "/tmp/tests.json", report))
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		want := `[PASSED] test/a.test.ts > sums > of 1 and 3
[PASSED] test/a.test.ts > sums > of none > in two lines
[PASSED] test/b.test.ts > of 1 and 2
[FAILED] test/a.test.ts > sums > of 1 and 2
[FAILED] test/b.test.ts > of 1 and 2
`
		if diff := cmp.Diff(want, string(out)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
