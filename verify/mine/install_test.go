package mine

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"deepswe/env"
	history "deepswe/env/mine"
	"deepswe/env/testkit"
)

// installer starts sandboxes in which every set-up leaves a file, and fails without --legacy-peer-deps.
type installer struct {
	env.Provider
	t   *testing.T
	dir string
	// tried are the command lines that were run, and found the files that were there before each of them.
	tried []string
	found [][]string
}

func (i *installer) Start(context.Context, env.Spec) (env.Sandbox, error) {
	return installing{by: i}, nil
}

type installing struct {
	env.Sandbox
	by *installer
}

func (i installing) Run(_ context.Context, c env.Command) (env.Result, error) {
	there, err := filepath.Glob(filepath.Join(i.by.dir, "*"))
	i.by.tried, i.by.found = append(i.by.tried, c.Line), append(i.by.found, there)
	testkit.WriteFile(i.by.t, filepath.Join(i.by.dir, "left"), "")
	if c.Line != "npm install --legacy-peer-deps" {
		return env.Result{ExitCode: 1, Stderr: env.Output{Head: []byte("retry with --legacy-peer-deps")}}, err
	}
	return env.Result{}, err
}

func (installing) Listen(context.Context, int) (net.Listener, error) {
	return net.Listen("tcp", "127.0.0.1:0")
}

func (installing) Close(context.Context) error { return nil }

// A set-up that fails is tried again as its tool suggests, without the files that the first try left.
func TestFillAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kept")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	remembered, err := Folder{t.TempDir()}.Open("deepswe")
	if err != nil {
		t.Fatal(err)
	}
	defer remembered.Close()
	i := &installer{t: t, dir: dir}
	m := Miner{Provider: i, Dir: remembered}
	err = m.fill(t.Context(), history.SetUp{Commands: []string{"npm install"}}, dir)
	if want := []string{"npm install", "npm install --legacy-peer-deps"}; err != nil || !slices.Equal(i.tried, want) {
		t.Errorf("tried %q, %v, want %q", i.tried, err, want)
	}
	if len(i.found[len(i.found)-1]) > 0 {
		t.Errorf("the second try finds %q, want nothing", i.found[len(i.found)-1])
	}
}
