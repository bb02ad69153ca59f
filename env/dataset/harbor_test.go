package dataset

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
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
