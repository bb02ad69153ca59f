package train

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"deepswe/env/testkit"
)

// scenario submits the job, stops it after a step or more, as Slurm does before the time limit, and submits it again,
// for two further steps. It is run where Slurm is, with the job's file and variables.
const scenario = `
set -eu
steps() { cat "$SHARED"/runs/*/metrics.jsonl 2>/dev/null | wc -l; }
runs() { [ -n "$(squeue -h -j "$1")" ]; }
first=$(sbatch --parsable --output="$SHARED/first" "$1")
while runs "$first" && [ "$(steps)" -lt 1 ]; do sleep 0.2; done
scontrol show job "$first" > "$SHARED/job"
sinfo -h -o %m > "$SHARED/memory"
scancel --batch --signal=TERM "$first"
while runs "$first"; do sleep 0.2; done
steps > "$SHARED/stopped"
sed -i "s/^steps: .*/steps: $(($(steps) + 2))/" "$1"
second=$(sbatch --parsable --output="$SHARED/second" "$1")
while runs "$second"; do sleep 0.2; done
scontrol show job "$second" | grep JobState=COMPLETED
`

// What --print slurm writes runs under a real Slurm of one node, as it is: the job starts the servers, which are
// stand-ins, each with its own GPUs and all processors; deepswe trains, is stopped, and goes on in the next job.
func TestRecipeUnderSlurm(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"slurmctld", "slurmd", "munged", "sbatch", "unshare", "ip", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			testkit.Skip(t, "slurm", err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", namespaces("true")...).CombinedOutput(); err != nil {
		testkit.Skip(t, "slurm", fmt.Sprintf("no namespaces: %v: %s", err, out))
	}
	root, shared := t.TempDir(), t.TempDir()
	buildStandIns(t, root, "", map[string]string{
		"bin/python": `exec servers skyrl "$@"`, "bin/vllm": `exec servers vllm "$@"`, "bin/psql": "exit 0",
		"bin/initdb": `mkdir -p "$2" && touch "$2/PG_VERSION"`, "bin/postgres": "exec sleep 100000",
	})
	job := testkit.WriteFile(t, filepath.Join(root, "train.sh"), printRecipe(t, filepath.Join(root, "deepswe"),
		"deepswe-adapter", "slurm", 1, 3, "steps=10000", "environment.sandbox.env=host"))

	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", namespaces("testdata/slurm.sh", t.TempDir(),
		"bash", "-c", scenario, "scenario", job)...)
	cmd.Env = append(os.Environ(), "SHARED="+shared, "DATA="+root, "STAND_IN_MODEL="+filepath.Join(root, "model"),
		"PATH="+strings.Join([]string{filepath.Join(root, "bin"), root, os.Getenv("PATH")}, ":"), "HOME="+root)
	out, err := cmd.CombinedOutput()
	t.Logf("%s\n%s\n%s\n%s", out, read(t, shared, "first"), read(t, shared, "second"), read(t, shared, "logs/*/*.log"))
	if err != nil {
		t.Fatal(err)
	}
	trainedAcrossJobs(t, shared)
}

// trainedAcrossJobs checks what the two jobs had of the node, and that the second went on where the first was stopped.
func trainedAcrossJobs(t *testing.T, shared string) {
	t.Helper()
	memory := "mem=" + strings.TrimSpace(read(t, shared, "memory")) + "M"
	if has := read(t, shared, "job"); !strings.Contains(has, memory) {
		t.Errorf("the job has not all memory, %s:\n%s", memory, has)
	}
	for server, gpus := range map[string]string{"skyrl": "0", "vllm-node0-0": "1", "vllm-node0-1": "2"} {
		share := fmt.Sprintf("%d processors, GPUs %s\n", runtime.NumCPU(), gpus)
		if said := read(t, shared, "logs/*/"+server+".log"); strings.Count(said, share) != 2 {
			t.Errorf("%s has another share of the node in one of two jobs, want %s%s", server, share, said)
		}
	}
	var taken []float64
	metrics := json.NewDecoder(strings.NewReader(read(t, shared, "runs/*/metrics.jsonl")))
	for metrics.More() {
		var m map[string]any
		if err := metrics.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if m["samplers/ready"] != 2.0 {
			t.Errorf("%v vLLM servers sample in step %v, want 2", m["samplers/ready"], m["step"])
		}
		taken = append(taken, m["step"].(float64))
	}
	stopped, err := strconv.Atoi(strings.TrimSpace(read(t, shared, "stopped")))
	var want []float64
	for i := range stopped + 2 {
		want = append(want, float64(i+1))
	}
	if err != nil || stopped < 1 || !slices.Equal(taken, want) {
		t.Errorf("%v; the first job was stopped after %d steps, and with the second the steps are %v", err, stopped, taken)
	}
}

// read returns the text of files in a directory.
func read(t *testing.T, dir, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s\n", data)
	}
	return all.String()
}

// namespaces are the arguments by which unshare starts a command that root runs apart from the machine's network.
func namespaces(command ...string) []string {
	return append([]string{"--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}, command...)
}
