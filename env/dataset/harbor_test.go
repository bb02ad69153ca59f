package dataset

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepswe/env"
)

// harborTask writes a task folder.
func harborTask(t *testing.T, folder, config, recipe string) string {
	t.Helper()
	write(t, filepath.Join(folder, "task.toml"), config)
	write(t, filepath.Join(folder, "instruction.md"), "<!-- canary 123 -->\n# BIG canary\n\nSort the shelf.\n")
	write(t, filepath.Join(folder, "tests/test.sh"),
		"#!/bin/bash\npytest /tests/test_shelf.py && echo 1 >/logs/verifier/reward.txt\n")
	write(t, filepath.Join(folder, "tests/data/odd"), "\xff\x00")
	if recipe != "" {
		write(t, filepath.Join(folder, "environment/Dockerfile"), recipe)
	}
	return folder
}

func TestHarbor(t *testing.T) {
	folder := harborTask(t, filepath.Join(t.TempDir(), "sort"), `
schema_version = "1.4"
[task]
name = "shelf/sort"
[metadata]
difficulty = "easy"
[environment]
cpus = 2
memory_mb = 512
env = { LANG = "C", LEVEL = "${LEVEL:-3}" }
network_mode = "no-network"
[verifier]
timeout_sec = 120.5
env = { MODE = "it's" }
network_mode = "public"
`, "FROM a AS b\nWORKDIR /x\nFROM b\n WORKDIR /app\nworkdir src\nRUN WORKDIR\n")
	tasks, errs := collect(folder, Options{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	got := tasks[0]
	if got.ID != "shelf/sort" || got.Source != Harbor || got.Statement != "Sort the shelf.\n" || got.Dir != "/app/src" ||
		got.Image != "" {
		t.Errorf("task is %+v", got)
	}
	if got.Dockerfile != filepath.Join(folder, "environment") {
		t.Errorf("the image is built from %s", got.Dockerfile)
	}
	if want := (env.Limits{CPUs: 2, Memory: 512 << 20}); got.Limits != want {
		t.Errorf("limits are %+v, want %+v", got.Limits, want)
	}
	if want := []string{"LANG=C", "LEVEL=3"}; !slices.Equal(got.Env, want) {
		t.Errorf("environment is %q, want %q", got.Env, want)
	}
	tests := got.Tests
	if tests.Timeout != 120500*time.Millisecond || !tests.Network || tests.RewardFile != harborReward ||
		tests.Files["/tests/data/odd"] != "\xff\x00" || len(tests.Files) != 2 {
		t.Errorf("tests are %+v", tests)
	}
	if want := "cd '/app/src'\nexport 'MODE=it'\\''s'\n/tests/test.sh\n"; !strings.HasSuffix(tests.Script, want) {
		t.Errorf("script is %q, want it to end in %q", tests.Script, want)
	}
}

func TestHarborDefaults(t *testing.T) {
	folder := harborTask(t, filepath.Join(t.TempDir(), "plain"),
		"[environment]\ndocker_image = \"shelf:1\"\nworkdir = \"/shelf\"\nmemory = \"1.5G\"\nallow_internet = false\n", "")
	tasks, errs := collect(folder, Options{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	got := tasks[0]
	if got.ID != "plain" || got.Image != "shelf:1" || got.Dockerfile != "" || got.Dir != "/shelf" ||
		got.Limits.Memory != 3<<29 || got.Tests.Network || got.Tests.Timeout != harborTimeout {
		t.Errorf("task is %+v", got)
	}
}

func TestHarborRefuses(t *testing.T) {
	recipe := "FROM x\nWORKDIR /app\n"
	for _, c := range []struct{ name, config, recipe, field string }{
		{"broken", "[", recipe, ""},
		{"steps", "[[steps]]\nname = \"a\"", recipe, "steps"},
		{"Windows", "[environment]\nos = \"Windows\"", recipe, "environment.os"},
		{"GPUs", "[environment]\ngpus = 1", recipe, "environment.gpus"},
		{"verifier's image", "[verifier.environment]\ndocker_image = \"x\"", recipe, "verifier.environment"},
		{"secret", "[verifier]\nenv = { KEY = \"${API_KEY}\" }", recipe, "verifier.env.KEY"},
		{"allowlist", "[environment]\nnetwork_mode = \"allowlist\"", recipe, "network_mode"},
		{"memory", "[environment]\nmemory = \"lots\"", recipe, "environment.memory"},
		{"no image", "", "", ""},
		{"no directory", "", "FROM x\n", "environment.workdir"},
		{"relative directory", "[environment]\nworkdir = \"app\"", recipe, "environment.workdir"},
		{"variable in directory", "", "FROM x\nWORKDIR $HOME/app\n", "environment.workdir"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := harborTask(t, filepath.Join(t.TempDir(), "task"), c.config, c.recipe)
			_, errs := collect(folder, Options{})
			if len(errs) != 1 {
				t.Fatalf("errors are %v, want one", errs)
			}
			if re, ok := errors.AsType[*RecordError](errs[0]); !ok || re.Field != c.field ||
				!strings.HasPrefix(re.File, folder) {
				t.Errorf("error is %v, want one about %q", errs[0], c.field)
			}
		})
	}
}

// A task folder comes from the internet. Whatever is not a regular file of its own is refused, and never read.
func TestHarborReadsRegularFilesOnly(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	write(t, outside, "of this machine")
	for _, c := range []struct {
		name, place string
		put         func(name string) error
		words       string
	}{
		{"instruction link", "instruction.md", linkTo(outside), "not a regular file"},
		{"instruction link inside", "instruction.md", linkTo("task.toml"), "not a regular file"},
		{"instruction FIFO", "instruction.md", fifo, "not a regular file"},
		{"instruction device", "instruction.md", linkTo("/dev/zero"), "not a regular file"},
		{"instruction directory", "instruction.md", directory, "not a regular file"},
		{"endless instruction", "instruction.md", sparse(mostText + 1), "longer than 4 MiB"},
		{"settings link", "task.toml", linkTo(outside), "not a regular file"},
		{"settings FIFO", "task.toml", fifo, "not a regular file"},
		{"test link", "tests/leak", linkTo(outside), "not a regular file"},
		{"test link to a device", "tests/zero", linkTo("/dev/zero"), "not a regular file"},
		{"test link to a directory", "tests/etc", linkTo("/etc"), "not a regular file"},
		{"test FIFO", "tests/fifo", fifo, "not a regular file"},
		{"test socket", "tests/socket", socket, "not a regular file"},
		{"script link", "tests/test.sh", linkTo(outside), "not a regular file"},
		{"tests link", "tests", linkTo(filepath.Dir(outside)), "not a directory"},
		{"endless test", "tests/big", sparse(harborBytes + 1), "64 MiB"},
		{"recipe link", "environment/Dockerfile", linkTo(outside), "not a regular file"},
		{"recipe FIFO", "environment/Dockerfile", fifo, "not a regular file"},
		{"FIFO beside the recipe", "environment/fifo", fifo, "not a regular file"},
		{"environment link", "environment", linkTo(filepath.Dir(outside)), "not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := harborTask(t, filepath.Join(t.TempDir(), "task"), "", "FROM x\nWORKDIR /app\n")
			place := filepath.Join(folder, c.place)
			if err := os.RemoveAll(place); err != nil {
				t.Fatal(err)
			}
			if c.place == "tests" || c.place == "environment" {
				write(t, filepath.Join(filepath.Dir(outside), "test.sh"), "#!/bin/sh\n")
				write(t, filepath.Join(filepath.Dir(outside), "Dockerfile"), "FROM x\nWORKDIR /app\n")
			}
			if err := c.put(place); err != nil {
				t.Fatal(err)
			}
			_, errs := collect(folder, Options{})
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), c.words) {
				t.Fatalf("errors are %v, want one with %q", errs, c.words)
			}
			if _, ok := errors.AsType[*RecordError](errs[0]); !ok {
				t.Errorf("error is %v, want one about the task alone", errs[0])
			}
		})
	}
}

// Links within the folder that an image is built from are allowed, because a build takes them as they are.
func TestHarborEnvironmentLinks(t *testing.T) {
	folder := harborTask(t, filepath.Join(t.TempDir(), "task"), "", "FROM x\nWORKDIR /app\n")
	if err := os.Symlink("/usr/bin/python3", filepath.Join(folder, "environment/python")); err != nil {
		t.Fatal(err)
	}
	if _, errs := collect(folder, Options{}); len(errs) > 0 {
		t.Error(errs)
	}
}

func linkTo(target string) func(string) error {
	return func(name string) error { return os.Symlink(target, name) }
}

func fifo(name string) error { return syscall.Mkfifo(name, 0o644) }

func directory(name string) error { return os.Mkdir(name, 0o755) }

func sparse(size int64) func(string) error {
	return func(name string) error {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			return err
		}
		return os.Truncate(name, size)
	}
}

// socket leaves a socket without a listener.
func socket(name string) error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	// A socket's path must be short, and a path relative to the directory's descriptor always is.
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return syscall.Bind(fd, &syscall.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(name))})
}
