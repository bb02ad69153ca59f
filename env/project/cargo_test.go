package project

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env/testkit"
)

// What a set-up has compiled is kept without the repository's own packages, those outside of the workspace included.
func TestKeepCargo(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("cargo"); err != nil {
		testkit.Skip(t, "cargo", err)
	}
	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	for name, text := range map[string]string{
		"Cargo.toml": "[package]\nname = \"halves\"\nversion = \"0.1.0\"\nedition = \"2021\"\n" +
			"[dependencies]\nrests = {path = \"rests\"}\n[workspace]\nexclude = [\"rests\"]\n",
		"src/lib.rs":       "pub fn half(n: i32) -> i32 { n / 2 + 0 * rests::rest(n) }\n",
		"tests/numbers.rs": "#[test]\nfn eight() { assert_eq!(halves::half(8), 4) }\n",
		"rests/Cargo.toml": "[package]\nname = \"rests\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
		"rests/src/lib.rs": "pub fn rest(n: i32) -> i32 { n % 2 }\n",
	} {
		testkit.WriteFile(t, filepath.Join(dir, name), text)
	}
	if err := os.Mkdir(filepath.Join(dir, ".deps"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(KeepCargo, cargoTarget, target))
	c.Dir, c.Env = dir, append(os.Environ(), "CARGO_TARGET_DIR="+target)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	} else if !exists(filepath.Join(dir, cargoKept, "debug")) {
		t.Fatalf("nothing is kept: %s", out)
	}
	err := filepath.WalkDir(filepath.Join(dir, cargoKept), func(path string, d fs.DirEntry, err error) error {
		for _, own := range []string{"halves", "numbers", "rests"} {
			if strings.Contains(d.Name(), own) {
				t.Errorf("%s is kept", path)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Features that the package does not have are left out, and all are if it does not compile with them.
func TestWithFeatures(t *testing.T) {
	t.Parallel()
	if got := WithFeatures("cargo test", nil); got != "cargo test" {
		t.Errorf("without features: %s", got)
	}
	if _, err := exec.LookPath("cargo"); err != nil {
		testkit.Skip(t, "cargo", err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/Cargo.toml": "[package]\nname = \"halves\"\nversion = \"0.1.0\"\nedition = \"2021\"\n" +
			"[features]\nodd = []\nnightly = []\n",
		"a/src/lib.rs": "#[cfg(feature = \"nightly\")]\ncompile_error!(\"only with nightly\");\n",
		"a/tests/a.rs": "#[test]\nfn even() {}\n#[cfg(feature = \"odd\")]\n#[test]\nfn odd() {}\n",
	} {
		testkit.WriteFile(t, filepath.Join(dir, name), text)
	}
	for features, odd := range map[string]bool{"odd": true, "odd later": true, "odd nightly": false, "later": false} {
		line := WithFeatures("cargo test --offline --manifest-path a/Cargo.toml --test a", strings.Fields(features))
		c := exec.CommandContext(t.Context(), "bash", "-uc", line)
		c.Dir, c.Env = dir, append(os.Environ(), "CARGO_TARGET_DIR="+filepath.Join(dir, "target"))
		out, err := c.CombinedOutput()
		if has := strings.Contains(string(out), "test odd ... ok"); err != nil || has != odd ||
			!strings.Contains(string(out), "test even ... ok") {
			t.Errorf("%s: %v\n%s", features, err, out)
		}
	}
}
