//go:build linux

package local

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepswe/env"
)

// place makes files and directories (names that end in a slash) below a directory that stands for the host's root.
func place(t *testing.T, root string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(root, name)
		dir := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			dir = path
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "/") {
			if err := os.WriteFile(path, nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRoots: what PATH needs is shown, and nothing else of the home.
func TestRoots(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(root, "home/me")
	place(t, root,
		"home/me/.ssh/id", "home/me/.npmrc", "home/me/work/secret", "home/me/bin/tool", "home/me/lib/x",
		"home/me/.local/bin/pipx", "home/me/.local/lib/x", "home/me/.local/share/keyrings/k",
		"home/me/.cargo/bin/cargo", "home/me/.cargo/registry/x", "home/me/.cargo/credentials.toml",
		"home/me/.cargo/config.toml",
		"home/me/.rustup/toolchains/x", "home/me/.pyenv/shims/python3", "home/me/.pyenv/bin/pyenv",
		"home/me/.pyenv/versions/3/bin/python3",
		"home/me/.nvm/versions/node/v20/bin/node", "home/me/.nvm/versions/node/v20/lib/x", "home/me/sdk/go/bin/go2",
		"home/me/sdk/go/lib/x",
		"home/me/go/bin/gopls", "home/me/go/src/private/x", "home/me/project/.venv/bin/python", "home/me/project/.venv/lib/x",
		"opt/tool/bin/tool", "opt/tool/lib/x", "opt/flat/tool", "real/node/bin/node", "real/node/lib/x", "links/x",
	)
	if err := os.Symlink(filepath.Join(root, "real/node/bin/node"), filepath.Join(root, "links/node")); err != nil {
		t.Fatal(err)
	}
	var path []string
	for _, dir := range []string{
		"home/me/bin", "home/me/.local/bin", "home/me/.cargo/bin", "home/me/.pyenv/shims", "home/me/.pyenv/bin",
		"home/me/sdk/go/bin", "home/me/go/bin", "home/me/project/.venv/bin", "opt/tool/bin", "opt/flat", "links",
		"nowhere", "home/me", "",
	} {
		path = append(path, filepath.Join(root, dir))
	}
	path = append(path, "relative/bin", "/usr/bin")
	chain := toolchainOf(t, []string{
		"HOME=" + home, "PATH=" + strings.Join(path, ":"), "API_KEY=secret",
		"VIRTUAL_ENV=" + filepath.Join(home, "project/.venv"),
		"GEM_HOME=" + filepath.Join(home, ".local"), "JAVA_HOME=" + home,
	})
	var want []string
	for _, dir := range []string{
		"home/me/.cargo/bin", "home/me/.cargo/registry", "home/me/.local/bin", "home/me/.pyenv", "home/me/.rustup",
		"home/me/bin",
		"home/me/go/bin", "home/me/project/.venv", "home/me/sdk/go", "links", "opt/flat", "opt/tool", "real/node",
	} {
		want = append(want, filepath.Join(root, dir))
	}
	slices.Sort(want)
	if got := chain.roots(); !slices.Equal(got, want) {
		t.Errorf("\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	for _, kv := range chain.environment(false) {
		if strings.Contains(kv, "secret") {
			t.Errorf("the environment has %s", kv)
		}
	}
	offline := func(network bool) bool { return slices.Contains(chain.environment(network), "GOPROXY=off") }
	if !offline(false) || offline(true) {
		t.Error("GOPROXY does not go by the network")
	}
}

// TestLinked: programs in PATH that are links are shown with what they were installed with, but without the user's
// files.
func TestLinked(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(root, "me")
	const share = "me/.local/share/"
	place(t, root, "me/.local/bin/plain", share+"keyrings/k",
		share+"pypoetry/venv/bin/poetry", share+"pypoetry/venv/lib/x", share+"pypoetry/venv/pyvenv.cfg",
		share+"uv/python/3.12/bin/python3.12", share+"uv/python/3.12/lib/python3.12/os.py",
		"me/.config/yarn/global/node_modules/tsc/bin.js", "me/.config/yarn/token",
		"me/work/bin/run", "me/work/lib/x", "me/work/.env", "me/.rye/self/bin/rye", "me/.aws/tool",
		"opt-1.2/bin/tool", "opt-1.2/lib/x")
	if err := os.Chmod(filepath.Join(home, ".local/bin/plain"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"me/.local/bin/poetry":             "../share/pypoetry/venv/bin/poetry",
		share + "pypoetry/venv/bin/python": filepath.Join(root, share, "uv/python/current/bin/python3.12"),
		share + "uv/python/current":        "3.12",
		"me/.local/bin/tsc":                "../../.config/yarn/global/node_modules/tsc/bin.js",
		"me/.local/bin/run":                filepath.Join(root, "me/work/bin/run"),
		"me/.local/bin/rye":                filepath.Join(root, "me/.rye/self/bin/rye"),
		"me/.local/bin/tool":               filepath.Join(root, "opt-current/bin/tool"),
		"opt-current":                      "opt-1.2",
		"me/.local/bin/aws":                filepath.Join(root, "me/.aws/tool"),
		"me/.local/bin/gone":               "nowhere",
		"me/.local/bin/loop":               "loop",
		"me/.local/bin/sh":                 "/bin/sh",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for _, name := range []string{
		"me/.config/yarn/global/node_modules", "me/.local/bin", "me/.local/share/pypoetry/venv",
		"me/.local/share/uv/python/3.12", "me/.local/share/uv/python/current", "me/.rye", "me/work/bin/run",
		"opt-1.2", "opt-current",
	} {
		want = append(want, filepath.Join(root, name))
	}
	got := toolchainOf(t, []string{"HOME=" + home, "PATH=" + home + "/.local/bin"}).roots()
	if !slices.Equal(got, want) {
		t.Errorf("\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// TestBundlerSettings: commands find the user's gems, but not the user's credentials.
func TestBundlerSettings(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	place(t, home, "gems/ruby/3.1.0/x", ".bundle/config")
	settings := "---\nBUNDLE_PATH: \"~/gems\"\nBUNDLE_GEMS__EXAMPLE__COM: \"me:secret\"\n"
	if err := os.WriteFile(filepath.Join(home, ".bundle/config"), []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	chain := toolchainOf(t, []string{"HOME=" + home, "PATH=/usr/bin", "BUNDLE_WITHOUT=production"})
	environment := chain.environment(false)
	for _, want := range []string{"BUNDLE_PATH=" + home + "/gems", "BUNDLE_WITHOUT=production"} {
		if !slices.Contains(environment, want) {
			t.Errorf("%s is not in %q", want, environment)
		}
	}
	if strings.Contains(strings.Join(environment, " "), "secret") {
		t.Errorf("a password is in %q", environment)
	}
	if got := chain.roots(); !slices.Equal(got, []string{filepath.Join(home, "gems")}) {
		t.Errorf("shown: %q", got)
	}
}

// TestAskGo: the go command runs with the user's own settings, and leaves nothing in the home.
func TestAskGo(t *testing.T) {
	home := t.TempDir()
	path := "PATH=" + os.Getenv("PATH")
	if chain := toolchainOf(t, []string{"HOME=" + home, path}); chain.goModCache != filepath.Join(home, "go/pkg/mod") {
		t.Errorf("the module cache is %s", chain.goModCache)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	for dir, variable := range map[string]string{".config": "", "settings": "XDG_CONFIG_HOME=" + home + "/settings"} {
		if err := os.MkdirAll(filepath.Join(home, dir, "go"), 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(home, dir, "go/env")
		if err := os.WriteFile(file, []byte("GOMODCACHE=/modules/"+dir+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := toolchainOf(t, []string{"HOME=" + home, path, variable}).goModCache; got != "/modules/"+dir {
			t.Errorf("with %s, the module cache is %s", file, got)
		}
	}
}

func TestOutermost(t *testing.T) {
	got := outermost([]string{"/a/b", "/a", "/ab", "/usr/local/go", "/a", "/usrx", "/opt/x/y", "/opt/x"})
	if want := []string{"/a", "/ab", "/opt/x", "/usrx"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestParents(t *testing.T) {
	if got := strings.Join(parents("/a/b/c"), " "); got != "--perms 0755 --dir /a --perms 0755 --dir /a/b" {
		t.Errorf("%s", got)
	}
	if got := parents("/a"); len(got) != 0 {
		t.Errorf("%s", got)
	}
}

func toolchainOf(t *testing.T, environ []string) *toolchain {
	t.Helper()
	chain, err := newToolchain(environ)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// A go command that does not answer, as on a slow disk, is an error, because tests would fail without its modules.
func TestGoThatHangs(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	chain := &toolchain{vars: map[string]string{"PATH": "/usr/bin:/bin"}, path: []string{dir}}
	if err := chain.askGo(10 * time.Millisecond); !errors.Is(err, env.ErrInfrastructure) {
		t.Errorf("error %v, want an infrastructure failure", err)
	}
}

// Sandboxes that start at once share the list of what all of them show. None of them writes to it.
func TestShownIsNotWrittenTo(t *testing.T) {
	t.Parallel()
	b := &Bwrap{base: base{toolchain: &toolchain{}}, shown: make([]string, 0, 4)}
	b.around(&scratch{}, env.Spec{Checkout: &env.Checkout{Root: "/work/a", Shown: []string{"/work/b"}}})
	b.interpreter(filepath.Join(t.TempDir(), "venv"))
	if at := b.shown[:1][0]; at != "" {
		t.Errorf("a sandbox has written %s", at)
	}
}
