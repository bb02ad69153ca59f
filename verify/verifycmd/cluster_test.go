package verifycmd

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/cli"
	"deepswe/agent/llm/llmtest"
	"deepswe/env/testkit"
	"deepswe/verify/swe"
)

// TestRestartedCluster kills and restarts the API server, the kubelet and containerd at random moments of an
// evaluation. Its results are those of an undisturbed run, and nothing is left in the cluster.
func TestRestartedCluster(t *testing.T) {
	if os.Getenv("DEEPSWE_TEST_FULL") == "" {
		t.Skip("it disturbs all pods of the node, and takes minutes: DEEPSWE_TEST_FULL asks for it")
	}
	lab := testkit.OpenKubelab(t)
	openKubernetes(t) // or skips
	dir := t.TempDir()
	const n, k, rounds = 12, 3, 3
	tasks := writeTasks(t, filepath.Join(dir, "tasks.jsonl"), numberTasks(n))
	endpoint := httptest.NewServer(&llmtest.Server{Answer: func(r llmtest.Request) llmtest.Reply {
		reply := guessing(r)
		reply.Wait = 2 * time.Second // so that most sandboxes are in the middle of a rollout
		return reply
	}})
	defer endpoint.Close()
	args := []string{
		"eval", "--env", cli.EnvKubernetes, "--tasks", tasks, "-k", strconv.Itoa(k), "--workers", "6", "--seed", "11",
		"--format", "xml", "--tokens", "--base-url", endpoint.URL + "/v1",
	}
	calm, disturbed := filepath.Join(dir, "calm"), filepath.Join(dir, "disturbed")
	began := time.Now()
	command(t, append(args, "--out", calm)...).wait(t)
	t.Logf("undisturbed: %.0f s for %d rollouts", time.Since(began).Seconds(), n*k)

	began = time.Now()
	r := command(t, append(args, "--out", disturbed)...)
	var restarts int
	for range rounds {
		parts := []string{"apiserver", "kubelet", "containerd"}
		rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		for _, part := range parts {
			time.Sleep(rand.N(4 * time.Second))
			if len(r.done) > 0 {
				break
			}
			at := time.Since(began)
			lab.Restart(t, part, "KILL")
			t.Logf("%5.1f s: %s killed, back after %.1f s", at.Seconds(), part, (time.Since(began) - at).Seconds())
			restarts++
		}
	}
	if len(r.done) > 0 && restarts < 6 {
		t.Errorf("the evaluation ended after %d restarts, want at least 6", restarts)
	}
	r.wait(t)
	t.Logf("restarted %d times: %.0f s", restarts, time.Since(began).Seconds())
	t.Logf("it said:\n%s", r.errOut.String())

	want, got := stable(t, calm), stable(t, disturbed)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the report of the disturbed run (-calm +disturbed):\n%s", diff)
	}
	for _, name := range []string{"preds.json", fmt.Sprintf("preds.%d.json", k-1), swe.RolloutsFile} {
		if read(t, filepath.Join(calm, name)) != read(t, filepath.Join(disturbed, name)) {
			t.Errorf("%s differs", name)
		}
	}
	once(t, disturbed, n*k)
	nothingLeft(t, cli.EnvKubernetes, calm, disturbed)
}
