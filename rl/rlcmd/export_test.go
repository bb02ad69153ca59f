package rlcmd

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"deepswe/agent/cli"
)

const (
	solved = `{"task":"a","group":"g","attempt":0,"reward":1,"stop_reason":"submitted","policy_version":1,"turns":[{"prompt_ids":[1,2],"completion_ids":[3],"logprobs":[-0.5]}]}`
	failed = `{"task":"a","group":"g","attempt":1,"reward":0,"stop_reason":"max_steps","policy_version":1,"turns":[{"prompt_ids":[1,2],"completion_ids":[4],"logprobs":[-1]}]}`
	torn   = `{"task":"a","group":"g","attempt":1,"reward":0,"stop_reason":"submitted","policy_version":1,"turns":[{"prompt_ids":[1,2],"completion_ids":[4,5],"logprobs":[-1]}]}`
)

// runExport runs the command as main would, and returns its exit code and output.
func runExport(t *testing.T, stdin io.Reader, args ...string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := newExport(deps(stdin, &stdout, &stderr))
	c.SetArgs(args)
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SilenceUsage, c.SilenceErrors = true, true
	if e := c.ExecuteContext(t.Context()); e != nil {
		code = cli.ExitCode(e)
		stderr.WriteString(e.Error())
	}
	return code, stdout.String(), stderr.String()
}

func file(t *testing.T, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExportRows(t *testing.T) {
	path := file(t, "rollouts.jsonl", solved, failed)
	args := []string{"--rollouts", path, "--format", "rows", "--algorithm", "grpo++", "--max-length", "32768", "--set",
		"filter.max_steps=mask"}
	code, out, report := runExport(t, nil, args...)
	want := `{"task":"a","group":"g","attempt":0,"row":0,"ids":[1,2,3],"mask":[0,0,1],"logprobs":[0,0,-0.5],"advantage":1,"scale":0.0000152587890625,"reward":1,"stop_reason":"submitted","policy_version":1,"policy_version_oldest":1,"policy_version_newest":1,"trained":true}
{"task":"a","group":"g","attempt":1,"row":0,"ids":[1,2,4],"mask":[0,0,0],"logprobs":[0,0,0],"advantage":-1,"scale":0.0000152587890625,"reward":0,"stop_reason":"max_steps","policy_version":1,"policy_version_oldest":1,"policy_version_newest":1,"trained":false}
`
	if code != 0 || out != want {
		t.Errorf("exit %d, stderr\n%s\nstdout\n%s\nwant\n%s", code, report, out, want)
	}
	for _, line := range []string{"2 rollouts in 1 groups: 1 trained, 1 masked", "masked for max_steps: 1",
		"2 rows, 1 trained tokens"} {
		if !strings.Contains(report, line) {
			t.Errorf("the report lacks %q:\n%s", line, report)
		}
	}

	to := filepath.Join(t.TempDir(), "rows.jsonl.zst")
	if code, out, report := runExport(t, nil, append(args, "--out", to)...); code != 0 || out != "" {
		t.Fatalf("exit %d, %s, stdout %q", code, report, out)
	}
	f, err := os.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if packed, err := io.ReadAll(r); err != nil || string(packed) != want {
		t.Errorf("the file holds %s, %v", packed, err)
	}
}

func TestExportReadsStdinAndRuns(t *testing.T) {
	args := []string{"--format", "rows", "--max-length", "10"}
	_, want, _ := runExport(t, nil, append(args, "--rollouts", file(t, "r.jsonl", solved, failed))...)
	if want == "" {
		t.Fatal("nothing was exported")
	}
	_, out, report := runExport(t, strings.NewReader(solved+"\n"+failed), append(args, "--rollouts", "-")...)
	if out != want {
		t.Errorf("stdin: %s\n%s", out, report)
	}
	_, out, report = runExport(t, nil, append(args, "--run", filepath.Dir(file(t, "rollouts.jsonl", solved, failed)))...)
	if out != want {
		t.Errorf("a run with a file: %s\n%s", out, report)
	}
	steps := filepath.Join(t.TempDir(), "steps")
	for i, line := range []string{solved, failed} {
		dir := filepath.Join(steps, fmt.Sprintf("%06d", i+1))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "rollouts.jsonl"), []byte(line+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, out, report = runExport(t, nil, append(args, "--run", filepath.Dir(steps))...); out != want {
		t.Errorf("a training run: %s\n%s", out, report)
	}
}

func TestExportOtherFormats(t *testing.T) {
	path := file(t, "r.jsonl", solved, failed)
	if code, out, report := runExport(t, nil, "--rollouts", path, "--format", "sft"); code != 0 ||
		out != `{"task":"a","group":"g","attempt":0,"row":0,"input_ids":[1,2,3],"labels":[-100,-100,3]}`+"\n" ||
		!strings.Contains(report, "1 of 2 rollouts solved their task") {
		t.Errorf("sft: exit %d, %s\n%s", code, out, report)
	}
	if code, out, report := runExport(t, nil, "--rollouts", path, "--format", "atropos", "--algorithm", "dr-grpo",
		"--max-length", "9"); code != 0 ||
		!strings.HasPrefix(out,
			`{"tokens":[[1,2,3],[1,2,4]],"masks":[[-100,-100,3],[-100,-100,4]],"scores":[1,0],"advantages":[[0,0,0.5],[0,0,-0.5]]`) {
		t.Errorf("atropos: exit %d, %s\n%s", code, out, report)
	}
}

func TestExportDryRun(t *testing.T) {
	code, out, report := runExport(t, nil, "--max-length", "9", "--set", "filter.stuck=drop", "--dry-run")
	for _, line := range []string{"baseline=leave_one_out\n", "filter.max_steps=mask\n", "filter.stuck=drop\n",
		"max_length=9\n", "clip.high=0.28\n"} {
		if code != 0 || !strings.Contains(out, line) {
			t.Errorf("exit %d, no %q in\n%s%s", code, line, out, report)
		}
	}
}

func TestExportWarns(t *testing.T) {
	zero := `{"task":"b","group":"g","attempt":0,"reward":1,"stop_reason":"submitted","turns":[{"prompt_ids":[1,2],"completion_ids":[3,4],"logprobs":[0,0]}]}`
	code, _, report := runExport(t, nil, "--rollouts", file(t, "r.jsonl", solved, solved, zero), "--max-length", "3",
		"--set", "filter.length=mask")
	for _, want := range []string{"1 rows were longer than 3 tokens and lost 1 tokens", "logprobs of 1 turns are all 0",
		"1 rollouts have the task, group and attempt of an earlier one", `no rollout stopped for "length"`} {
		if code != 0 || !strings.Contains(report, want) {
			t.Errorf("exit %d, no %q in\n%s", code, want, report)
		}
	}
}

func TestExportRefuses(t *testing.T) {
	good, bad := file(t, "good.jsonl", solved), file(t, "bad.jsonl", solved, torn)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"bad.jsonl: line 2: turns[0].logprobs: 1 for 2 completion_ids", []string{"--rollouts", bad, "--max-length", "9"}},
		{"bad.jsonl: line 2: turns[0].logprobs", []string{"--rollouts", bad, "--format", "sft"}},
		{"either --rollouts FILE or --run DIR", []string{"--max-length", "9"}},
		{"either --rollouts FILE or --run DIR", []string{"--rollouts", good, "--run", ".", "--max-length", "9"}},
		{"set max_length (--max-length)", []string{"--rollouts", good}},
		{"--max-length is -1", []string{"--rollouts", good, "--max-length", "-1", "--algorithm", "grpo"}},
		{"grpo++, grpo, dr-grpo, rloo, dapo", []string{"--rollouts", good, "--algorithm", "ppo"}},
		{"rows, sft, atropos", []string{"--rollouts", good, "--format", "parquet"}},
		{"want KEY=VALUE", []string{"--rollouts", good, "--max-length", "9", "--set", "std"}},
		{"there are baseline", []string{"--rollouts", good, "--max-length", "9", "--set", "beta=1"}},
		{"--set does not apply to --format sft", []string{"--rollouts", good, "--format", "sft", "--set", "std=true"}},
		{"--min-reward does not apply to --format rows", []string{"--rollouts", good, "--max-length", "9", "--min-reward",
			"0.5"}},
		{"no such file", []string{"--rollouts", good + ".gone", "--max-length", "9"}},
		{"is a directory; use --run for the directory of a run",
			[]string{"--rollouts", filepath.Dir(good), "--max-length", "9"}},
		{"takes no arguments", []string{good}},
		{"gone", []string{"--rollouts", good, "--max-length", "9", "--out",
			filepath.Join(filepath.Dir(good), "gone", "rows.jsonl")}},
	} {
		code, out, report := runExport(t, nil, c.args...)
		if code != 2 || out != "" || !strings.Contains(report, c.want) {
			t.Errorf("%v: exit %d, stdout %q, want %q in\n%s", c.args, code, out, c.want, report)
		}
	}
}

// A failed export leaves an existing file as it was.
func TestExportLeavesTheOldFile(t *testing.T) {
	to := file(t, "rows.jsonl", "old")
	if code, _, _ := runExport(t, nil, "--rollouts", file(t, "bad.jsonl", solved, torn), "--max-length", "9", "--out",
		to); code == 0 {
		t.Fatal("a torn rollout was exported")
	}
	if b, err := os.ReadFile(to); err != nil || string(b) != "old\n" {
		t.Errorf("the file now holds %q, %v", b, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(to)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}
