package verifycmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/cli"
	"deepswe/agent/llm/llmtest"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/testkit"
	"deepswe/verify/swe"
)

// scale returns the size of the test of killed runs. The full size, with DEEPSWE_TEST_FULL, takes minutes.
func scale(provider string) (tasks, attempts, kills, workers int) {
	if os.Getenv("DEEPSWE_TEST_FULL") != "" {
		if provider == cli.EnvKubernetes {
			return 12, 3, 30, 6
		}
		return 64, 4, 20, 6
	}
	if testing.Short() {
		return 3, 2, 1, 3
	}
	return 6, 3, 4, 4
}

// numberTasks are tasks in a two-megabyte image without git, in which a number has to be changed.
func numberTasks(n int) []env.Task {
	var tasks []env.Task
	prepare := []string{"echo 0 > number; echo constant > constant"}
	for i := range n {
		tasks = append(tasks, env.Task{
			ID: fmt.Sprintf("number-%03d", i), Source: "deepswe", Statement: fmt.Sprintf("The number must be %d.", 1000+i),
			Image: busybox, Dir: "/testbed",
			Prepare: prepare,
			Tests: env.Tests{
				FailToPass: []string{"test.sh::number"}, PassToPass: []string{"test.sh::constant"}, Parser: "parse_log_pytest",
				EvalType: "pass_and_fail",
				Prepare:  prepare, Script: "#!/bin/sh\necho '>>>>> Start Test Output'\n. ./hidden.sh\necho '>>>>> End Test Output'\n",
				Files: map[string]string{"hidden.sh": fmt.Sprintf(
					"check() { if [ \"$2\" = \"$3\" ]; then echo PASSED test.sh::$1; else echo FAILED test.sh::$1; fi; }\n"+
						"check number \"$(cat number)\" %d\ncheck constant \"$(cat constant)\" constant\n", 1000+i)},
			},
		})
	}
	return tasks
}

// guessing is a model that takes a few steps. Its seed decides whether it gets the number right.
func guessing(r llmtest.Request) llmtest.Reply {
	var seed uint64
	_ = json.Unmarshal(r.Member("seed"), &seed)
	_, number, _ := strings.Cut(statementOf(r), "The number must be ")
	number, _, _ = strings.Cut(number, ".")
	n, _ := strconv.Atoi(number)
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	if random.IntN(n%4+1) > 0 {
		number = "7"
	}
	replies := []string{bash("cat number constant"), bash("ls; echo " + number + " > number"), bash("cat number"), finish}
	if random.IntN(5) == 0 {
		replies = []string{"I do not know.", finish}
	}
	return llmtest.Text(fmt.Sprintf("Step %d.\n%s", turnOf(r)+1, replies[min(turnOf(r), len(replies)-1)]))
}

// flapping makes an endpoint fail in many ways, and sometimes go away for a while.
type flapping struct {
	mu     sync.Mutex
	random *rand.Rand
	began  time.Time
	faults int
}

func (f *flapping) answer(r llmtest.Request) llmtest.Reply {
	f.mu.Lock()
	defer f.mu.Unlock()
	reply := guessing(r)
	faults := []llmtest.Reply{
		llmtest.BadGateway(), llmtest.Hangup(), llmtest.Disconnect(reply),
		llmtest.Status(http.StatusServiceUnavailable, "loading"),
		llmtest.RateLimited(0), llmtest.Malformed(), llmtest.NoChoices(),
	}
	switch down := time.Since(f.began)%(7*time.Second) > 6*time.Second; {
	case down:
		f.faults++
		return llmtest.Hangup()
	case f.random.IntN(8) == 0:
		f.faults++
		return faults[f.random.IntN(len(faults))]
	}
	return reply
}

// TestKilledRuns kills an evaluation at random moments and resumes it, with an endpoint that flaps. In the end its
// results are those of an undisturbed run, nothing was lost or done twice, and no sandbox is left.
func TestKilledRuns(t *testing.T) {
	t.Parallel()
	t.Run(cli.EnvDocker, func(t *testing.T) {
		t.Parallel()
		testkit.Images(t, busybox)
		killedRuns(t, cli.EnvDocker)
	})
	t.Run(cli.EnvKubernetes, func(t *testing.T) {
		t.Parallel()
		openKubernetes(t) // or skips
		killedRuns(t, cli.EnvKubernetes)
	})
}

func killedRuns(t *testing.T, provider string) {
	n, k, kills, workers := scale(provider)
	dir := t.TempDir()
	tasks := writeTasks(t, filepath.Join(dir, "tasks.jsonl"), numberTasks(n))
	steady := httptest.NewServer(&llmtest.Server{Answer: guessing})
	defer steady.Close()
	unsteady := &flapping{random: rand.New(rand.NewPCG(1, 2)), began: time.Now()}
	counted := &llmtest.Server{Answer: unsteady.answer}
	flaps := httptest.NewServer(counted)
	defer flaps.Close()

	args := []string{
		"eval", "--env", provider, "--tasks", tasks, "-k", strconv.Itoa(k), "--workers", strconv.Itoa(workers), "--seed",
		"11", "--format", "xml", "--tokens",
	}
	calm, disturbed := filepath.Join(dir, "calm"), filepath.Join(dir, "disturbed")
	began := time.Now()
	command(t, append(args, "--out", calm, "--base-url", steady.URL+"/v1")...).wait(t)
	t.Logf("undisturbed: %.0f s for %d rollouts", time.Since(began).Seconds(), n*k)
	began = time.Now()

	again := func() *running {
		if !run.Exists(disturbed) { // it was killed before it wrote its manifest
			return command(t, append(slices.Clip(args), "--out", disturbed, "--base-url", flaps.URL+"/v1")...)
		}
		return command(t, "eval", "--resume", "--workers", strconv.Itoa(workers), "--out", disturbed, "--base-url",
			flaps.URL+"/v1")
	}
	again().kill(t, 500*time.Millisecond)
	life := 4 * time.Second
	if provider == cli.EnvKubernetes {
		life *= 2 // a pod alone takes a second or two
	}
	killed := 1
	for ; killed < kills; killed++ {
		if ended := again().kill(t, rand.N(life)); ended {
			break
		}
	}
	again().wait(t)
	t.Logf("killed %d times, with %d faults of the endpoint: %.0f s", killed, unsteady.faults, time.Since(began).Seconds())

	want, got := stable(t, calm), stable(t, disturbed)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the report of the disturbed run (-calm +disturbed):\n%s", diff)
	}
	if want.Finished != n*k || want.Solved == 0 || want.Solved == n*k {
		t.Errorf("%d of %d rollouts finished, %d solved; want all, and not all", want.Finished, n*k, want.Solved)
	}
	for _, name := range []string{"preds.json", fmt.Sprintf("preds.%d.json", k-1), swe.RolloutsFile} {
		if read(t, filepath.Join(calm, name)) != read(t, filepath.Join(disturbed, name)) {
			t.Errorf("%s differs", name)
		}
	}
	for _, run := range []string{calm, disturbed} {
		once(t, run, n*k)
	}
	nothingLeft(t, provider, calm, disturbed)
	// Replies that were recorded are not asked for again. Requests beyond those of the calm run either failed or were
	// cut off by a kill.
	if asked, most := len(counted.Requests()), want.Steps+unsteady.faults+killed*workers; asked > most {
		t.Errorf("the endpoint was asked %d times, want at most %d", asked, most)
	}
}

// TestInterruptedRun interrupts an evaluation as a user does, and resumes it.
func TestInterruptedRun(t *testing.T) {
	t.Parallel()
	testkit.Images(t, busybox)
	dir := t.TempDir()
	tasks := writeTasks(t, filepath.Join(dir, "tasks.jsonl"), numberTasks(2))
	asked := make(chan struct{}, 100)
	var slow atomic.Bool
	slow.Store(true)
	endpoint := httptest.NewServer(&llmtest.Server{Answer: func(r llmtest.Request) llmtest.Reply {
		reply := guessing(r)
		asked <- struct{}{}
		if slow.Load() && turnOf(r) > 1 {
			reply.Wait = time.Minute
		}
		return reply
	}})
	defer endpoint.Close()
	out := filepath.Join(dir, "run")
	flags := []string{"--out", out, "--base-url", endpoint.URL + "/v1"}
	r := command(t, append([]string{"eval", "--tasks", tasks, "-k", "2", "--workers", "4", "--seed", "11", "--format",
		"xml"}, flags...)...)
	for range 10 { // by then some rollouts wait for a reply
		<-asked
	}
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := <-r.done
	if code := r.cmd.ProcessState.ExitCode(); code != cli.ExitInterrupted ||
		!strings.Contains(r.errOut.String(), "resume with: deepswe eval --resume --out "+out) {
		t.Fatalf("exit code %d, %v:\n%s", code, err, r.errOut.String())
	}
	if before := stable(t, out); before.Complete || before.Missing == 0 {
		t.Errorf("the report of a run that was stopped: complete %v, %d missing", before.Complete, before.Missing)
	}
	slow.Store(false)
	command(t, append([]string{"eval", "--resume"}, flags...)...).wait(t)
	if after := stable(t, out); !after.Complete || after.Finished != 4 || after.Missing != 0 {
		t.Errorf("afterwards: complete %v, %d finished, %d missing", after.Complete, after.Finished, after.Missing)
	}
	once(t, out, 4)
	nothingLeft(t, cli.EnvDocker, out)
}

// writeTasks writes a file of tasks in our own format.
func writeTasks(t testing.TB, path string, tasks []env.Task) string {
	t.Helper()
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for _, task := range tasks {
		if err := enc.Encode(task); err != nil {
			t.Fatal(err)
		}
	}
	return testkit.WriteFile(t, path, lines.String())
}

// running is a command that runs in its own process.
type running struct {
	cmd    *exec.Cmd
	errOut *bytes.Buffer
	done   chan error
}

func command(t *testing.T, args ...string) *running {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{cmd: exec.Command(self, args...), errOut: &bytes.Buffer{}, done: make(chan error, 1)}
	o := dockerOptions(t)
	r.cmd.Env = append(os.Environ(), "DEEPSWE_TEST_GUEST="+o.Executable, "DEEPSWE_TEST_STATE="+o.State)
	r.cmd.Stdout, r.cmd.Stderr = r.errOut, r.errOut
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	return r
}

// wait waits for the command, which must succeed.
func (r *running) wait(t *testing.T) {
	t.Helper()
	if err := <-r.done; err != nil {
		t.Fatalf("the command ended with %v:\n%s", err, tail(r.errOut.String(), 4000))
	}
}

// kill kills the command after some time. ended says that it had ended by itself.
func (r *running) kill(t *testing.T, after time.Duration) (ended bool) {
	t.Helper()
	select {
	case err := <-r.done:
		if err != nil {
			t.Fatalf("the command ended with %v before it was killed:\n%s", err, tail(r.errOut.String(), 4000))
		}
		return true
	case <-time.After(after):
	}
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-r.done
	return false
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// stable returns a run's report without what depends on time.
func stable(t *testing.T, run string) swe.EvaluationReport {
	t.Helper()
	var r swe.EvaluationReport
	if err := readReport(filepath.Join(run, swe.ReportFile), &r); err != nil {
		t.Fatal(err)
	}
	r.Seconds, r.Tries = swe.Seconds{}, 0
	return r
}

// once checks that each rollout finished exactly once, according to the journal.
func once(t *testing.T, path string, want int) {
	t.Helper()
	f, err := os.Open(filepath.Join(path, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[run.Job]int{}
	for s := bufio.NewScanner(f); s.Scan(); {
		var e struct {
			Event string `json:"event"`
			run.Job
		}
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Event == string(run.Finished) {
			seen[e.Job]++
		}
	}
	for a, n := range seen {
		if n != 1 {
			t.Errorf("%s: %v finished %d times", path, a, n)
		}
	}
	if len(seen) != want {
		t.Errorf("%s: %d rollouts finished, want %d", path, len(seen), want)
	}
}

// nothingLeft checks that no sandbox of the runs is left. What a killed process had started ends by itself within
// moments.
func nothingLeft(t *testing.T, provider string, runs ...string) {
	t.Helper()
	for _, run := range runs {
		var left string
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
			if left = leftOf(t, provider, filepath.Base(run)); left == "" {
				break
			}
		}
		if left != "" {
			t.Errorf("sandboxes of %s are left:\n%s", run, left)
		}
	}
}

// leftOf returns the sandboxes that a run, or any dead process, has left.
func leftOf(t *testing.T, provider, run string) string {
	t.Helper()
	if provider == cli.EnvKubernetes {
		all, err := openKubernetes(t).Reap(t.Context(), env.ReapOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		var left strings.Builder
		for _, l := range all {
			fmt.Fprintln(&left, l.Kind, l.ID, l.Run, l.Owner)
		}
		return left.String()
	}
	left, err := exec.CommandContext(t.Context(), "docker", "ps", "-a", "--filter",
		"label=deepswe.run="+run, "--format", "{{.Names}} {{.Status}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(left))
}
