package setup

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// generation changes when set-ups that earlier versions of deepswe have kept can no longer be used.
const generation = 1

// Key identifies what a set-up installs. It depends on the repository, the sandbox, the commands, the lock files and
// manifests below the root and, if the sandbox uses this machine's programs, on its package managers and interpreters.
func Key(root, sandbox string, commands []string, machine bool) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%d %q %q %q\n", generation, root, sandbox, commands)
	if err := manifests(h, root); err != nil {
		return "", fmt.Errorf("set-up of %s: %w", root, err)
	}
	if machine {
		tools(h)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// named returns the names of lock files and manifests, except for pip's requirements.
func named() []string {
	return []string{
		"package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "pnpm-workspace.yaml", "yarn.lock",
		".yarnrc.yml", ".npmrc", ".nvmrc", ".node-version", "uv.lock", "poetry.lock", "pyproject.toml", "setup.py",
		"setup.cfg", "Pipfile", "Pipfile.lock", ".python-version", "go.mod", "go.sum", "go.work", "go.work.sum", "Cargo.toml",
		"Cargo.lock", "rust-toolchain", "rust-toolchain.toml", "pom.xml", "build.gradle", "build.gradle.kts",
		"settings.gradle", "settings.gradle.kts", "gradle.lockfile", "gradle-wrapper.properties", "libs.versions.toml",
		"Gemfile", "Gemfile.lock", ".ruby-version", ".tool-versions", "mise.toml", "composer.json", "composer.lock",
	}
}

// Limits of the search for manifests.
const (
	mostEntries   = 200_000
	mostManifests = 2_000
	largestFile   = 16 << 20
)

// manifests writes the names and contents of the manifests below root, except for those in directories that package
// managers fill.
func manifests(to io.Writer, root string) error {
	seen, found := 0, 0
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if seen++; seen > mostEntries || found > mostManifests {
			return fs.SkipAll
		}
		switch {
		case err != nil && path == root:
			return err
		case err != nil:
			return nil // the installation cannot read it either
		case d.IsDir() && path != root && skipped(d.Name()):
			return fs.SkipDir
		case !d.Type().IsRegular() || !IsManifest(path):
			return nil
		}
		found++
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer f.Close()
		content := sha256.New()
		if _, err := io.Copy(content, io.LimitReader(f, largestFile)); err != nil {
			return err
		}
		fmt.Fprintf(to, "%q %x\n", name, content.Sum(nil))
		return nil
	})
}

// IsManifest reports whether a file says by its name what a project needs installed: a lock file, a manifest, or the
// pin of a toolchain.
func IsManifest(path string) bool {
	return requirements(path) || filepath.Ext(path) == ".gemspec" || slices.Contains(named(), filepath.Base(path))
}

// requirements reports whether a file is one of pip's: requirements-dev.txt, or requirements/dev.txt.
func requirements(path string) bool {
	return filepath.Ext(path) == ".txt" &&
		(strings.Contains(filepath.Base(path), "requirements") || filepath.Base(filepath.Dir(path)) == "requirements")
}

func skipped(dir string) bool {
	return slices.Contains([]string{
		".git", "node_modules", ".venv", "venv", ".tox", "target", "vendor", "dist", "build", "site-packages", "testdata",
		"__pycache__", ".gradle", ".yarn",
	}, dir)
}

// tools writes the paths and versions of this machine's package managers and interpreters.
func tools(to io.Writer) {
	const names = "node npm pnpm yarn python3 uv poetry pip go cargo rustc java mvn gradle ruby bundle gcc"
	for name := range strings.FieldsSeq(names) {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			continue
		}
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintf(to, "%s %q %d %d\n", name, path, info.Size(), info.ModTime().UnixNano())
		}
	}
	fmt.Fprintf(to, "%q %q\n", os.Getenv("PYENV_VERSION"), os.Getenv("VIRTUAL_ENV"))
}
