package testkit

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Kubelab is the single-node cluster that .ci/run starts, for tests that disturb it.
type Kubelab struct {
	// Scripts is the folder of up.sh; Run is where the cluster keeps its credentials and logs.
	Scripts, Run string
}

// OpenKubelab returns the cluster whose scripts DEEPSWE_TEST_KUBELAB names. The test skips if there is none.
func OpenKubelab(t testing.TB) *Kubelab {
	t.Helper()
	l := &Kubelab{Scripts: os.Getenv("DEEPSWE_TEST_KUBELAB"), Run: "/var/tmp/kubelab/run"}
	if l.Scripts == "" {
		Skip(t, "kubernetes", "DEEPSWE_TEST_KUBELAB names no folder of a cluster's scripts; .ci/run does")
	}
	return l
}

// Kubectl runs kubectl as the administrator, and returns what it printed.
func (l *Kubelab) Kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(l.Run, "../bin/kubectl"), append([]string{"--kubeconfig",
		filepath.Join(l.Run, "admin.kubeconfig")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %v: %v: %s", args, err, out)
	}
	return string(out)
}

// StartBeside runs a program beside the cluster, which finds the administrator's credentials in KUBECONFIG. When the
// test ends, the program is ended with SIGTERM; what it has printed is logged if the test or the program has failed.
func (l *Kubelab) StartBeside(t testing.TB, program string, args ...string) {
	t.Helper()
	said, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(l.Run, "admin.kubeconfig"))
	c.Stdout, c.Stderr = said, said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait() // it is ended by the signal
		said.Close()
		if text, _ := os.ReadFile(said.Name()); err != nil || t.Failed() {
			t.Logf("%s: %v\n%s", filepath.Base(program), err, text)
		}
	})
}

// Restart sends a signal to a part of the cluster (apiserver, kubelet, containerd), and starts it again once it has
// ended.
func (l *Kubelab) Restart(t testing.TB, part, signal string) {
	t.Helper()
	said, err := os.ReadFile(filepath.Join(l.Run, "pids", part))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(said))[0])
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("kill", "-"+signal, strconv.Itoa(pid)).CombinedOutput(); err != nil {
		t.Fatalf("kill %s: %v %s", part, err, out)
	}
	for { // until it is gone, or a zombie whose threads no longer hold its ports
		process := "/proc/" + strconv.Itoa(pid)
		state, err := os.ReadFile(process + "/stat")
		threads, _ := os.ReadDir(process + "/task")
		if err != nil || strings.Contains(string(state), ") Z ") && len(threads) <= 1 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := os.Remove(filepath.Join(l.Run, "pids", part)); err != nil { // up.sh takes a zombie for running
		t.Fatal(err)
	}
	// up.sh takes the socket that a killed containerd leaves for a live one.
	if err := os.Remove(filepath.Join(l.Run, part+".sock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(l.Scripts, "up.sh")).CombinedOutput(); err != nil {
		t.Fatalf("restart %s: %v\n%s", part, err, out)
	}
}
