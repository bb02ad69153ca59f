package recipe_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env/testkit"
	"deepswe/rl/train/recipe"
)

// validator returns a program of the folder that .ci/recipes fills.
func validator(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("DEEPSWE_TEST_RECIPES")
	if dir == "" {
		testkit.Skip(t, "recipes", "DEEPSWE_TEST_RECIPES names no folder with "+name+"; .ci/recipes makes one")
	}
	return filepath.Join(dir, name)
}

// everyRecipe returns what is printed in a form for the sizes of docs/recipes.md, and for the bundled configurations on
// each of those where they have room, by a name that can be a file's.
func everyRecipe(t *testing.T, kind string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, c := range clusters {
		if kind != recipe.Compose || c.nodes == 1 {
			all[c.name], _ = printed(t, kind, c.nodes, c.gpus, c.set)
		}
	}
	files, err := filepath.Glob("../../../testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		for _, size := range [][2]int{{1, 1}, {1, 8}, {8, 8}} {
			text, _, err := printedFrom(name, kind, size[0], size[1])
			if err == nil { // others need --set, no servers, or more room
				all[fmt.Sprintf("%s on %d x %d", name, size[0], size[1])] = text
			}
		}
	}
	t.Logf("%d recipes: %q", len(all), slices.Sorted(maps.Keys(all)))
	return all
}

// judge gives a recipe to a validator, and returns what that has against it.
func judge(t *testing.T, text, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return cmp.Or(string(out), err.Error())
	}
	return string(out) // warnings
}

// What --print compose writes is what `docker compose config` takes, without a warning.
func TestComposeConfig(t *testing.T) {
	t.Parallel()
	compose := validator(t, "docker-compose")
	args := []string{"-f", "-", "config", "--quiet"}
	recipes := everyRecipe(t, recipe.Compose)
	for name, text := range recipes {
		if wrong := judge(t, text, compose, args...); wrong != "" {
			t.Errorf("%s: %s", name, wrong)
		}
	}
	for _, slip := range [][2]string{
		{"restart: on-failure:20", "restarts: on-failure:20"}, // an unknown member
		{"{source: train,", "{source: training,"},             // a configuration that is not there
		{`"$$@"`, `"$unescaped"`},                             // a variable of Compose's
	} {
		text := strings.Replace(recipes["one node"], slip[0], slip[1], 1)
		if judge(t, text, compose, args...) == "" {
			t.Errorf("%s is taken", slip[1])
		}
	}
}

// What --print kubernetes writes, and what docs/kubernetes.md has, is what kubeconform takes, strictly, with the API's
// and KubeRay's own schemas.
func TestKubeconform(t *testing.T) {
	t.Parallel()
	kubeconform := validator(t, "kubeconform")
	args := []string{"-strict", "-schema-location", schemas(t, filepath.Dir(kubeconform)) +
		"/{{.ResourceKind}}{{.KindSuffix}}.json"}
	recipes := everyRecipe(t, recipe.Kubernetes)
	dir := t.TempDir()
	for name, text := range recipes {
		testkit.WriteFile(t, filepath.Join(dir, name+".yaml"), text)
	}
	if wrong := judge(t, "", kubeconform, append(args, dir, "../../../docs/kubernetes")...); wrong != "" {
		t.Error(wrong)
	}
	for _, slip := range [][2]string{
		{"backoffLimit: 20", "backoffLimits: 20"},      // an unknown member
		{"backoffLimit: 20", `backoffLimit: "20"`},     // another type
		{"serviceName: vllm", "podManagement: vllm"},   // a member that is missing
		{"rayStartParams:", "rayStartParameters:"},     // an unknown member of KubeRay's
		{"kind: DaemonSet", "kind: DaemonSets"},        // an unknown kind
		{"containerPort: 9100", "containerPorts: 910"}, // deep in a list
	} {
		text := strings.Replace(recipes["eight nodes"], slip[0], slip[1], 1)
		if judge(t, text, kubeconform, args...) == "" {
			t.Errorf("%s is taken", slip[1])
		}
	}
}
