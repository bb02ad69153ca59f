//go:build linux

package local

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/env/project"
)

// toolchain is the host's compilers and interpreters, which commands can use.
type toolchain struct {
	vars map[string]string // the host's environment
	home string            // the user's home
	path []string          // directories of PATH that exist

	goCache, goModCache string // empty if Go is not installed
}

// passed lists the variables that locate and configure toolchains. Sandboxes get no other variables of the host's
// environment, because many contain secrets.
func passed() []string {
	return append(project.BundlerSettings(),
		"ASDF_DATA_DIR", "ASDF_DIR", "CARGO_HOME", "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "DOTNET_ROOT", "GEM_HOME", "GEM_PATH",
		"GOEXPERIMENT", "GOFLAGS", "GOROOT", "GOTOOLCHAIN", "JAVA_HOME", "M2_HOME", "MAVEN_HOME", "NVM_DIR", "PYENV_ROOT",
		"PYENV_VERSION", "RBENV_ROOT", "RBENV_VERSION", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "SDKMAN_DIR", "TZ", "VIRTUAL_ENV",
		"VOLTA_HOME")
}

func newToolchain(environ []string) (*toolchain, error) {
	t := &toolchain{vars: map[string]string{}}
	for _, kv := range environ {
		key, value, _ := strings.Cut(kv, "=")
		t.vars[key] = value
	}
	t.home = t.vars["HOME"]
	if home, err := filepath.EvalSymlinks(t.home); err == nil {
		t.home = home
	}
	t.vars["PATH"] = cmp.Or(t.vars["PATH"], "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	for _, dir := range filepath.SplitList(t.vars["PATH"]) {
		if isDir(dir) && filepath.IsAbs(dir) && !slices.Contains(t.path, dir) {
			t.path = append(t.path, filepath.Clean(dir))
		}
	}
	t.defaults()
	return t, t.askGo(probeTimeout)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// defaults sets variables for what toolchains look for below the home directory, which is different in a sandbox.
func (t *toolchain) defaults() {
	for key, dir := range map[string]string{
		"PYENV_ROOT": ".pyenv", "RBENV_ROOT": ".rbenv", "RUSTUP_HOME": ".rustup", "CARGO_HOME": ".cargo", "NVM_DIR": ".nvm",
		"VOLTA_HOME": ".volta", "SDKMAN_DIR": ".sdkman",
	} {
		if own := filepath.Join(t.home, dir); t.vars[key] == "" && t.home != "" && isDir(own) {
			t.vars[key] = own
		}
	}
	maps.Copy(t.vars, project.Bundler(t.home, func(key string) string { return t.vars[key] }))
}

// askGo asks the go command for its caches. The module cache lets it work without a network.
func (t *toolchain) askGo(limit time.Duration) error {
	var program string
	for _, dir := range t.path {
		candidate := filepath.Join(dir, "go")
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			program = candidate
			break
		}
	}
	if program == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "env", "-json", "GOCACHE", "GOMODCACHE", "GOROOT")
	cmd.Dir = "/"
	for key, value := range t.vars {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	// The go command counts its calls in files below its configuration, which are the user's.
	config := cmp.Or(t.vars["XDG_CONFIG_HOME"], filepath.Join(t.home, ".config"))
	cmd.Env = append(cmd.Env, "GOTOOLCHAIN=local", "XDG_CONFIG_HOME="+os.DevNull,
		"GOENV="+cmp.Or(t.vars["GOENV"], filepath.Join(config, "go", "env")))
	out, err := cmd.Output()
	if ctx.Err() != nil { // without its modules, the tests of every project in Go would fail
		return fmt.Errorf("%w: %s env did not answer within %v; to fix: make it work, or leave it out of PATH",
			env.ErrInfrastructure, program, limit)
	}
	if err != nil {
		return nil // a broken go command is not our problem
	}
	var answer struct{ GOCACHE, GOMODCACHE, GOROOT string }
	if json.Unmarshal(out, &answer) != nil {
		return nil
	}
	t.goCache, t.goModCache, t.vars["GOROOT"] = answer.GOCACHE, answer.GOMODCACHE, answer.GOROOT
	return nil
}

// environment returns the initial environment of commands: variables for the host's programs, and nothing else of
// the host's environment.
func (t *toolchain) environment(network bool) []string {
	all := []string{"PATH=" + strings.Join(t.path, ":"), "LANG=C.UTF-8", "TERM=dumb"}
	for _, key := range passed() {
		if value := t.vars[key]; value != "" {
			all = append(all, key+"="+value)
		}
	}
	if isDir(t.goModCache) { // else the sandbox's own home has one
		all = append(all, "GOMODCACHE="+t.goModCache)
	}
	if !network {
		// Without these variables, the programs wait a long time for a DNS server.
		all = guest.Overlay(all, []string{
			"GOPROXY=off", "GOTOOLCHAIN=local", "CARGO_NET_OFFLINE=true", "PIP_NO_INDEX=1", "npm_config_offline=true",
			"YARN_ENABLE_NETWORK=0", "COREPACK_ENABLE_NETWORK=0", "UV_OFFLINE=1",
		})
	}
	return all
}

// managers lists the directories of version managers, below the home. They contain only programs, and the shims in
// them may start any of these.
func managers() []string {
	return []string{
		".pyenv", ".rbenv", ".nodenv", ".asdf", ".nvm", ".fnm", ".volta", ".rustup", ".sdkman", ".bun", ".deno", ".goenv",
		".rye", ".local/share/fnm", ".local/share/mise", ".local/share/pnpm", ".local/share/rtx", "miniconda3", "anaconda3",
		"miniforge3", "mambaforge",
	}
}

// manager returns the directory of the version manager that a directory belongs to; empty if it belongs to none.
func (t *toolchain) manager(dir string) string {
	if t.home == "" || t.home == "/" {
		return ""
	}
	for _, name := range managers() {
		if whole := filepath.Join(t.home, name); within(dir, whole) {
			return whole
		}
	}
	return ""
}

// roots returns the host directories that the programs in PATH need, besides the system's. Below the home
// directory, it includes only directories known to contain nothing but programs: never the home itself, and never a
// directory with credentials.
func (t *toolchain) roots() []string {
	var all []string
	add := func(dir string) {
		if dir == "" || !filepath.IsAbs(dir) {
			return
		}
		dir = filepath.Clean(dir)
		if _, err := os.Stat(dir); err == nil && !t.private(dir) {
			all = append(all, dir)
		}
	}
	for _, dir := range t.path {
		for _, root := range t.rootsOf(dir) {
			add(root)
			if real, err := filepath.EvalSymlinks(root); err == nil && real != root {
				add(real)
			}
		}
	}
	for _, key := range []string{
		"GOROOT", "JAVA_HOME", "PYENV_ROOT", "RBENV_ROOT", "RUSTUP_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "DOTNET_ROOT",
		"GEM_HOME", "BUNDLE_PATH",
	} {
		add(t.vars[key])
	}
	for _, name := range []string{"bin", "registry", "git", "env"} {
		if cargo := t.vars["CARGO_HOME"]; cargo != "" {
			add(filepath.Join(cargo, name)) // not all of it: registry tokens are in the same directory
		}
	}
	add(t.goModCache)
	for _, dir := range t.interpreters() {
		add(dir)
	}
	return outermost(append(all, t.linked()...))
}

// rootsOf returns the directories that the programs in a directory of PATH need.
func (t *toolchain) rootsOf(dir string) []string {
	if whole := t.manager(dir); whole != "" {
		return []string{whole}
	}
	if base := filepath.Base(dir); base == "bin" || base == "sbin" {
		prefix := filepath.Dir(dir)
		if isDir(filepath.Join(prefix, "lib")) && !t.private(prefix) {
			return []string{prefix}
		}
	}
	return []string{dir}
}

// private reports whether a directory contains mainly the user's own files rather than programs.
func (t *toolchain) private(dir string) bool {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		real = dir
	}
	for _, d := range []string{dir, real} {
		if d == "/" || t.home != "" && within(t.home, d) {
			return true // the home itself or a directory above it
		}
		if t.home == "" || t.home == "/" || !within(d, t.home) {
			continue
		}
		switch strings.TrimPrefix(d, t.home+"/") {
		case ".local", ".local/share", ".config", ".cache", ".cargo", ".ssh", ".gnupg", ".aws", ".docker", ".kube":
			return true
		}
	}
	return false
}

// interpreters returns the real directories of common programs that are only symbolic links in PATH.
func (t *toolchain) interpreters() []string {
	var dirs []string
	for _, name := range []string{
		"bash", "sh", "git", "make", "gcc", "cc", "python3", "python", "pip", "pytest", "uv", "node", "npm", "go", "ruby",
		"java", "cargo", "rustc",
	} {
		for _, dir := range t.path {
			real, err := filepath.EvalSymlinks(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			dirs = append(dirs, t.rootsOf(filepath.Dir(real))...)
			break
		}
	}
	return dirs
}

// system returns the directories that every sandbox can see.
func system() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
}

// outermost removes directories inside other ones, or inside the system's directories.
func outermost(dirs []string) []string {
	slices.Sort(dirs)
	var kept []string
	for _, dir := range slices.Compact(dirs) {
		if !withinAny(dir, slices.Concat(system(), kept)...) {
			kept = append(kept, dir)
		}
	}
	return kept
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func withinAny(path string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return within(path, dir) })
}
