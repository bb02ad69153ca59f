package mine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env/testkit"
)

// Tests with the same title in different suites are different tests, whatever their titles end with. Of those with the
// same name, the one that fails comes last. A file that fails without such a test is one.
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
  {"name": "DIR/test/b.test.ts", "status": "failed", "assertionResults": [
    {"title": "of 1 and 2", "status": "failed"},
    {"title": "of 1 and 2", "status": "passed"}
  ]},
  {"name": "DIR/test/c.test.ts", "status": "failed", "assertionResults": []},
  {"name": "DIR/test/d.test.ts", "status": "failed", "assertionResults": [{"title": "after", "status": "passed"}]},
  {"name": "DIR/test/e.test.ts", "status": "passed", "assertionResults": []}
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
[PASSED] test/d.test.ts > after
[FAILED] test/a.test.ts > sums > of 1 and 2
[FAILED] test/b.test.ts > of 1 and 2
[FAILED] test/c.test.ts
[FAILED] test/d.test.ts
`
		if diff := cmp.Diff(want, string(out)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// Vitest 0 refuses to run with the option that turns type checks off.
func TestTypeChecksOfVitest(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"vitest/0.25.8 linux-x64 node-v20.20.2": false, "vitest/1.6.1": true} {
		bin := t.TempDir()
		npx := testkit.WriteFile(t, filepath.Join(bin, "npx"),
			"#!/bin/sh\ncase \"$*\" in *--version) echo '"+version+"';; *) echo \"$*\";; esac\n")
		if err := os.Chmod(npx, 0o755); err != nil {
			t.Fatal(err)
		}
		const command = "npx --no-install vitest run --reporter=verbose a.test.ts"
		how, _ := readable(command)
		how.report = ""
		c := exec.CommandContext(t.Context(), "sh", "-c", how.command(command))
		c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := c.CombinedOutput()
		if got := strings.Contains(string(out), " --typecheck.enabled=false "); err != nil || got != want {
			t.Errorf("%s: %s, %v", version, out, err)
		}
	}
}

// The reports of all of a build's projects are read, and none that an earlier run has left. They are those of Gradle
// 4.4.1, in files that Surefire names in the same way.
func TestReportsOfJUnit(t *testing.T) {
	t.Parallel()
	const report = `<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="shelf.ShelfTest" tests="2" skipped="0" failures="1" errors="0" timestamp="2026-11-29T22:58:30" hostname="vm" time="0.004">
  <properties/>
  <testcase name="counts" classname="shelf.ShelfTest" time="0.006"/>
  <testcase name="hasAHalf" classname="shelf.ShelfTest" time="0.005">
    <failure message="java.lang.AssertionError: expected:&lt;5&gt; but was:&lt;4&gt;" type="java.lang.AssertionError">java.lang.AssertionError: expected:&lt;5&gt; but was:&lt;4&gt;
	at org.junit.Assert.fail(Assert.java:89)
</failure>
  </testcase>
  <system-out><![CDATA[]]></system-out>
  <system-err><![CDATA[]]></system-err>
</testsuite>
`
	const want = `  <testcase name="counts" classname="shelf.ShelfTest" time="0.006"/>
  <testcase name="hasAHalf" classname="shelf.ShelfTest" time="0.005">
    <failure message="java.lang.AssertionError: expected:&lt;5&gt; but was:&lt;4&gt;" type="java.lang.AssertionError">java.lang.AssertionError: expected:&lt;5&gt; but was:&lt;4&gt;
  </testcase>
`
	for command, at := range map[string]string{
		"gradle --console=plain :core:test --tests a.ATest": "core/build/test-results/test/",
		"mvn -B test -Dtest=ATest":                          "core/target/surefire-reports/",
	} {
		dir := t.TempDir()
		testkit.WriteFile(t, filepath.Join(dir, "written"), report)
		testkit.WriteFile(t, filepath.Join(dir, at, "TEST-old.xml"), report)
		run := "#!/bin/sh\nmkdir -p " + at + "\ncp written " + at + "TEST-shelf.ShelfTest.xml\nexit 7\n"
		program, _, _ := strings.Cut(command, " ")
		if err := os.Chmod(testkit.WriteFile(t, filepath.Join(dir, "bin", program), run), 0o755); err != nil {
			t.Fatal(err)
		}
		how, _ := readable(command)
		c := exec.CommandContext(t.Context(), "sh", "-c", how.command(command))
		c.Dir, c.Env = dir, append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
		out, _ := c.Output()
		if diff := cmp.Diff(want, string(out)); diff != "" || c.ProcessState.ExitCode() != 7 {
			t.Errorf("%s exits with %v (-want +got):\n%s", command, c.ProcessState, diff)
		}
	}
}
