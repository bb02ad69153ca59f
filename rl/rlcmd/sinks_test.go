package rlcmd

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"deepswe/agent/cli"
	"deepswe/env/hub/testdata/hubtest"
	"deepswe/env/testkit"
)

// A run's metrics go to each sink that a flag names, and so do those of a resumed run.
func TestTrainSendsMetrics(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	asked := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.URL.Path]++
		fmt.Fprint(w, `{"experiment_id": "1", "run": {"info": {"run_id": "1"}}}`)
	}))
	defer server.Close()
	out, wandb := filepath.Join(dir, "run"), filepath.Join(dir, "wandb")
	send := []string{
		"--trackio", server.URL + "?write_token=t", "--mlflow", server.URL, "--wandb", wandb,
	}
	if _, said, err := runTrain(t.Context(), append(send, "--config", writeConfig(t), "--out", out)...); err != nil ||
		strings.Contains(said, "metrics") {
		t.Fatalf("%v\n%s", err, said)
	}
	logs := func() int {
		found, err := filepath.Glob(filepath.Join(wandb, "offline-run-*", "run-*.wandb"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	if n := logs(); n != 1 || asked["/api/bulk_log"] == 0 || asked["/api/2.0/mlflow/runs/update"] != 2 {
		t.Errorf("%d logs, %v", n, asked)
	}
	resume := append(send, "--resume", "--out", out, "--set", "steps=4")
	if _, said, err := runTrain(t.Context(), resume...); err != nil || logs() != 1 {
		t.Errorf("%v, %d logs\n%s", err, logs(), said)
	}
	if asked["/api/2.0/mlflow/runs/update"] != 4 || asked["/api/2.0/mlflow/runs/search"] != 2 {
		t.Errorf("%v", asked)
	}
	for flag, value := range map[string]string{"--mlflow": "host", "--trackio": "http://host"} {
		if _, _, err := runTrain(t.Context(), "--config", writeConfig(t), "--out", out+"2", flag, value); err == nil ||
			!strings.Contains(err.Error(), flag+": ") || cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// A merged folder is pushed only to the given hub.
func TestMergePushes(t *testing.T) {
	h := hubtest.New(t)
	dir := t.TempDir()
	folder := filepath.Join(dir, "fixer")
	testkit.WriteFile(t, filepath.Join(folder, "model.safetensors"), "weights")
	testkit.WriteFile(t, filepath.Join(folder, "README.md"), "# Page\n")
	merge := func(environment map[string]string, args ...string) (string, error) {
		var said bytes.Buffer
		d := deps(nil, &said, &said)
		d.Getenv = func(key string) string { return environment[key] }
		c := newMerge(d)
		c.SetArgs(args)
		c.SilenceUsage, c.SilenceErrors = true, true
		c.SetOut(io.Discard)
		err := c.ExecuteContext(t.Context())
		return said.String(), err
	}
	token := map[string]string{"HF_TOKEN": hubtest.Token}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--out", folder, "--push", "acme/fixer"}, "give --hub URL"},
		{[]string{"--out", folder, "--push", "fixer", "--hub", h.URL}, `invalid --push "fixer"`},
		{[]string{"--out", folder, "--push", "acme/fixer", "--hub", "hub"}, "--hub hub is not an address"},
		{[]string{"--out", folder}, "is missing"},
	} {
		if _, err := merge(token, c.args...); cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.args, err)
		}
	}
	if len(h.Requests) != 0 {
		t.Fatalf("asked %q", h.Requests)
	}
	push := []string{"--out", folder, "--push", "acme/fixer", "--hub", h.URL}
	said, err := merge(nil, push...)
	if err == nil || !strings.Contains(err.Error(), "HF_TOKEN") || !strings.Contains(said,
		"to go on with the upload: deepswe merge --out "+folder+" --push acme/fixer --hub "+h.URL) {
		t.Errorf("%v\n%s", err, said)
	}
	token["HF_ENDPOINT"] = h.URL + "/"
	if said, err = merge(token, push[:4]...); err != nil || h.Files["model.safetensors"] != "weights" ||
		!strings.Contains(said, "2 files in commit 0000") || strings.Contains(said, hubtest.Token) {
		t.Errorf("%v, %v\n%s", err, h.Files, said)
	}
	if said, err = merge(token, push...); err != nil || !strings.Contains(said, "is up to date") {
		t.Errorf("%v\n%s", err, said)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if _, err = merge(token, push...); err == nil {
		t.Error("a folder that does not exist was pushed")
	}
}
