package mine

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	// tried are the command lines that were run, found the files that each of them began with, and variables those of the
	// last one. shown is what its sandbox shows.
	tried, variables []string
	found            [][]string
	shown            []env.Shown
}

func (i *installer) Start(_ context.Context, s env.Spec) (env.Sandbox, error) {
	i.shown = s.Shown
	return installing{by: i}, nil
}

type installing struct {
	env.Sandbox
	by *installer
}

func (i installing) Run(_ context.Context, c env.Command) (env.Result, error) {
	there, err := filepath.Glob(filepath.Join(i.by.dir, "*"))
	i.by.tried, i.by.found, i.by.variables = append(i.by.tried, c.Line), append(i.by.found, there), c.Env
	testkit.WriteFile(i.by.t, filepath.Join(i.by.dir, "left"), "")
	if !strings.HasSuffix(c.Line, "npm install --legacy-peer-deps") {
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

// Set-ups of one process share what npm downloads, which those of a killed one have left out of date, and whose files
// every user of a sandbox may change. It is not kept.
func TestFillShares(t *testing.T) {
	t.Parallel()
	remembered, err := Folder{t.TempDir()}.Open("deepswe")
	if err != nil {
		t.Fatal(err)
	}
	defer remembered.Close()
	downloads := remembered.Path(downloadsDir)
	old := testkit.WriteFile(t, filepath.Join(downloads, "npm", "old"), "")
	dir := t.TempDir()
	i := &installer{t: t, dir: dir}
	m := Miner{Provider: i, Dir: remembered}
	forget, err := m.shareDownloads()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("what an earlier process has downloaded is there: %v", err)
	}
	shared := filepath.Join(downloads, "npm")
	for dir, want := range map[string]os.FileMode{downloads: 0o700, shared: 0o777} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", dir, info, err, want)
		}
	}
	how := history.SetUp{Commands: []string{"npm install"}, Variables: []string{"A=b"}}
	if err := m.fill(t.Context(), how, dir); err != nil {
		t.Fatal(err)
	}
	want := []string{"umask 0; npm install", "umask 0; npm install --legacy-peer-deps"}
	if !slices.Equal(i.tried, want) {
		t.Errorf("tried %q, want %q", i.tried, want)
	}
	if !slices.Contains(i.shown, env.Shown{Host: shared, Path: "/downloads", Writable: true}) {
		t.Errorf("the sandbox shows %v", i.shown)
	}
	for _, variable := range []string{"A=b", "npm_config_cache=/downloads"} {
		if !slices.Contains(i.variables, variable) {
			t.Errorf("%s is missing among %q", variable, i.variables)
		}
	}
	if slices.Equal(how.Commands, want) || len(how.Variables) != 1 {
		t.Errorf("the caller's set-up has become %v", how)
	}
	if err := forget(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(downloads); !os.IsNotExist(err) {
		t.Errorf("the downloads are kept: %v", err)
	}
}
