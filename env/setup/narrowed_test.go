package setup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"deepswe/env"
	"deepswe/env/project"
	"deepswe/env/testkit"
)

// Only the development dependencies that cannot be installed are left out, and the manifest is restored.
func TestNarrowedInstall(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	// This npm fails if the manifest names a package called gone, and records what it has installed.
	const npm = "#!/bin/sh\nif grep -q gone package.json; then exit 1; fi\n" +
		`case "$*" in *--dry-run*) ;; *) cp package.json installed ;; esac` + "\n"
	for name, c := range map[string]struct {
		manifest, installed string
		fails               bool
	}{
		"two of seven": {
			manifest:  `{"dependencies": {"x": "1"}, "devDependencies": {"a": "1", "gone-b": "1", "c": "~2", "d": "1", "e": "1", "f": "1", "gone-g": "1"}}`,
			installed: `{"dependencies":{"x":"1"},"devDependencies":{"a":"1","c":"~2","d":"1","e":"1","f":"1"}}`,
		},
		"all":             {manifest: `{"devDependencies": {"gone": "1"}}`, installed: `{"devDependencies":{}}`},
		"one that counts": {manifest: `{"dependencies": {"gone": "1"}, "devDependencies": {"a": "1"}}`, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, programs := t.TempDir(), t.TempDir()
			manifest := testkit.WriteFile(t, filepath.Join(dir, "package.json"), c.manifest)
			if err := os.Chmod(testkit.WriteFile(t, filepath.Join(programs, "npm"), npm), 0o755); err != nil {
				t.Fatal(err)
			}
			run := exec.CommandContext(t.Context(), "sh", "-c", narrowedInstall)
			run.Dir, run.Env = dir, append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
			if out, err := run.CombinedOutput(); (err != nil) != c.fails {
				t.Errorf("%v: %s", err, out)
			}
			installed, _ := os.ReadFile(filepath.Join(dir, "installed")) // absent where nothing was
			if string(installed) != c.installed {
				t.Errorf("installed %s, want %s", installed, c.installed)
			}
			if after, err := os.ReadFile(manifest); err != nil || string(after) != c.manifest {
				t.Errorf("the manifest is %s, %v", after, err)
			}
		})
	}
}

// Set-ups that share npm's cache install the same, and later ones find sooner what cannot be had.
func TestNarrowedInstallRemembers(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	const npm = "#!/bin/sh\necho >>runs\nif grep -q gone package.json; then exit 1; fi\ncp package.json installed\n"
	cache := t.TempDir()
	install := func(version string) (runs int, installed string) {
		dir, programs := t.TempDir(), t.TempDir()
		testkit.WriteFile(t, filepath.Join(dir, "package.json"),
			`{"devDependencies": {"a": "1", "b": "1", "c": "1", "gone": "`+version+`", "e": "1", "f": "1", "g": "1", "h": "1"}}`)
		if err := os.Chmod(testkit.WriteFile(t, filepath.Join(programs, "npm"), npm), 0o755); err != nil {
			t.Fatal(err)
		}
		run := exec.CommandContext(t.Context(), "sh", "-c", narrowedInstall)
		run.Dir, run.Env = dir, append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "npm_config_cache="+cache)
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		calls, _ := os.ReadFile(filepath.Join(dir, "runs")) // npm has written both
		result, _ := os.ReadFile(filepath.Join(dir, "installed"))
		return len(calls), string(result)
	}
	const without = `{"devDependencies":{"a":"1","b":"1","c":"1","e":"1","f":"1","g":"1","h":"1"}}`
	first, installed := install("1")
	if installed != without {
		t.Errorf("the first set-up installs %s", installed)
	}
	for _, version := range []string{"1", "2"} {
		again, installed := install(version)
		if installed != without {
			t.Errorf("a later set-up installs %s", installed)
		}
		if again != 2 || // the package that was left out, and the installation of all others
			again >= first {
			t.Errorf("npm runs %d times, then %d times", first, again)
		}
	}
	if left, err := os.ReadFile(filepath.Join(cache, leftOut)); err != nil || string(left) != "gone@1\ngone@2\n" {
		t.Errorf("it remembers %q, %v", left, err)
	}
}

// A command is replaced where another set-up has shown that it would fail.
func TestForeseen(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	testkit.WriteFile(t, filepath.Join(cache, leftOut), "a@^1\ngone@~2\n")
	elsewhere, pipe := t.TempDir(), t.TempDir()
	if err := os.Symlink(filepath.Join(cache, leftOut), filepath.Join(elsewhere, leftOut)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(pipe, leftOut), 0o600); err != nil {
		t.Fatal(err)
	}
	const asks, install = `{"devDependencies": {"b": "1", "gone": "~2"}}`, "npm install --no-package-lock"
	for name, c := range map[string]struct{ command, manifest, cache, want string }{
		"the same version":      {install + " --force", asks, cache, narrowedInstall + " --force"},
		"another version":       {install, `{"devDependencies": {"a": "1", "gone": "~3"}}`, cache, install},
		"not for development":   {install, `{"dependencies": {"gone": "~2"}}`, cache, install},
		"a lock file":           {"npm ci", asks, cache, "npm ci"},
		"the first set-up":      {install, asks, t.TempDir(), install},
		"a link to a file":      {install, asks, elsewhere, install},
		"a pipe":                {install, asks, pipe, install},
		"not a manifest of npm": {install, "", cache, install},
	} {
		if got := Foreseen(c.command, []byte(c.manifest), c.cache); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestGitOverHTTPS(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"ssh://git@github.com/a/b.git": "https://github.com/a/b.git\n",
		"git@github.com:a/b":           "https://github.com/a/b\n",
		"git://github.com/a/b":         "https://github.com/a/b\n",
		"https://gitlab.com/a/b":       "https://gitlab.com/a/b\n",
	} {
		run := exec.CommandContext(t.Context(), "git", "ls-remote", "--get-url", address)
		run.Env = append(os.Environ(), append(gitOverHTTPS(), "GIT_CONFIG_GLOBAL=/dev/null")...)
		if got, err := run.Output(); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", address, got, err, want)
		}
	}
}

// A package whose script fails does not end a set-up, and the scripts of others run.
func TestLenientScripts(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		testkit.Skip(t, "node", err)
	}
	dir := t.TempDir()
	for name, script := range map[string]string{"a": "postinstall", "b": "install", "@c/d": "preinstall", "e": "test"} {
		testkit.WriteFile(t, filepath.Join(dir, "node_modules", name, "package.json"),
			fmt.Sprintf(`{"name": %q, "scripts": {%q: "x"}}`, name, script))
	}
	npm := testkit.WriteFile(t, filepath.Join(dir, "bin", "npm"), "#!/bin/sh\necho \"$@\"; [ \"$2\" != a ]\n")
	if err := os.Chmod(npm, 0o755); err != nil {
		t.Fatal(err)
	}
	_, next := Explain(&env.SetupError{Line: "npm ci", Result: env.Result{Stderr: env.Output{Head: []byte(
		"npm error code 1\nnpm error path /x/node_modules/a\nnpm error command failed\nnpm error command sh -c node install.js\n")}}})
	c := exec.CommandContext(t.Context(), "sh", "-c", next)
	c.Dir, c.Env = dir, append(os.Environ(), "PATH="+filepath.Dir(npm)+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	const want = "ci --ignore-scripts\nrebuild a\nrebuild b\nrebuild @c/d\n"
	if err != nil || string(out) != want {
		t.Errorf("%v, %s, want %s", err, out, want)
	}
}

// A requirement that cannot be built is installed in another version, and the others in their own.
func TestLoosenedInstall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := testkit.WriteFile(t, filepath.Join(dir, "requirements/dev.txt"), "a==1\nold-one==1.1 ; x\nold-one-more==1\nb==2\nCollected==3\n")
	// This pip cannot build two of the requirements, of which it names one, and says what it was asked for.
	pip := testkit.WriteFile(t, filepath.Join(dir, ".venv/bin/pip"), `#!/bin/sh
echo "$@" >>asked
case "$*" in *--only-binary*) exit 0;; esac
if grep -q '^old-one=' requirements/dev.txt; then echo "ERROR: Failed to build 'old-one' when getting requirements"; exit 1; fi
if grep -q '^Coll' requirements/dev.txt; then echo "Collecting b"; echo "Collecting collected==3"; exit 1; fi
`)
	if err := os.Chmod(pip, 0o755); err != nil {
		t.Fatal(err)
	}
	line := "true && " + project.PipInstall + "-r requirements/dev.txt -e ."
	_, line = Explain(&env.SetupError{Line: line, Result: env.Result{Stderr: env.Output{
		Head: []byte("Collecting old-one==1.1\nerror: subprocess-exited-with-error\n"),
	}}})
	c := exec.CommandContext(t.Context(), "sh", "-ec", line)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	const want = "install -r requirements/dev.txt -e .\ninstall -r requirements/dev.txt -e .\n" +
		"install -r requirements/dev.txt -e .\ninstall --only-binary :all: old-one\ninstall --only-binary :all: collected\n"
	if err != nil || string(asked) != want {
		t.Errorf("%v, asked for\n%s", err, asked)
	}
	if left, err := os.ReadFile(file); err != nil || string(left) != "a==1\nold-one-more==1\nb==2\n" {
		t.Errorf("%v, left\n%s", err, left)
	}
}

// What a host of repositories does not deliver is left out. An outage of the registry is none of a package's.
func TestNarrowedAfter(t *testing.T) {
	t.Parallel()
	for printed, want := range map[string]bool{
		"npm error code E404\nnpm error 404 Not Found - GET https://registry.npmjs.org/x\n":                            true,
		"npm ERR! code 128\nnpm ERR! An unknown git error occurred\n":                                                  true,
		"npm error code E502\nnpm error 502 Bad Gateway - GET https://github.com/a/b/tarball/v1\n":                     true,
		"npm error code ENOTFOUND\nnpm error network request to https://codeload.github.com/a/b/tar.gz/1 failed\n":     true,
		"npm error code E502\nnpm error 502 Bad Gateway - GET https://registry.npmjs.org/x\n":                          false,
		"npm error code ENOTFOUND\nnpm error network request to https://registry.npmjs.org/x failed\n":                 false,
		"npm warn deprecated x: see https://github.com/a/b\nnpm error code EUSAGE\nnpm error npm ci needs a lock file": false,
	} {
		_, next := Explain(&env.SetupError{Line: "npm ci", Result: env.Result{Stderr: env.Output{Head: []byte(printed)}}})
		if got := next == narrowedInstall; got != want {
			t.Errorf("%s: %t, want %t", printed, got, want)
		}
	}
}
