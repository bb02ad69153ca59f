package train

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/testkit"
)

const (
	serving = "FROM deepswe-test:busybox\nCOPY servers /servers\nCOPY model /model\nCOPY bin /bin\n"
	// On several nodes SkyRL's image has Ray, and neither wget nor Ray's dashboard, like one with SkyRL's own packages.
	servingOnRay = "FROM deepswe-test:bookworm\nCOPY servers /servers\nCOPY model /model\n" +
		"COPY bin/python bin/ray /usr/local/bin/\nCOPY ray /ray\nENV PYTHONPATH=/ray\n"
	// As the page says, it has git. wget is missing in the image, so a stand-in is copied.
	driving = "FROM deepswe-test:bookworm\nCOPY deepswe /deepswe\nCOPY *.jsonl /data/\n" +
		"COPY servers /servers\nCOPY wget /usr/local/bin/wget\n"
)

// standInImages builds the images of a recipe, loads them into the cluster, and returns the path of deepswe. SkyRL's
// has the Ray in the folder that .ci/kuberay has filled, if there is one.
func standInImages(t *testing.T, l *testkit.Kubelab, kuberay string) string {
	t.Helper()
	root := t.TempDir()
	buildStandIns(t, root, `"image":"deepswe-test:bookworm",`, map[string]string{
		"bin/bash":   `exec sh "$@"`,
		"bin/python": `if [ "$1" = -c ]; then exec python3 "$@"; fi; exec /servers skyrl "$@"`,
		"bin/ray":    `exec python3 -m ray.scripts.scripts "$@"`,
		"bin/vllm":   `exec /servers vllm "$@"`, "wget": `exec /servers wget "$@"`,
		"bin/psql": "exit 0", "bin/pg_isready": "exit 0",
	})
	skyrl := serving
	if kuberay != "" {
		execute(t, "", "cp", "-r", filepath.Join(kuberay, "ray"), root)
		skyrl = servingOnRay
	}
	images := [][2]string{ // a name, and a Dockerfile in the directory of what was built
		{"registry.example.com/deepswe:1", driving},
		{"registry.example.com/skyrl:0.4.0", skyrl},
		{"vllm/vllm-openai:v0.32.0", serving + "ENTRYPOINT [\"vllm\", \"serve\"]\n"},
		{"postgres:17", serving + "CMD [\"sleep\", \"100000\"]\n"},
	}
	for _, image := range images {
		if exec.CommandContext(t.Context(), "docker", "image", "inspect", image[0]).Run() == nil {
			t.Fatalf("the daemon has an image %s already, which the test would replace", image[0])
		}
	}
	load := make([]string, 0, len(images))
	for _, image := range images {
		execute(t, image[1], "docker", "build", "-q", "-t", image[0], "-f", "-", root)
		t.Cleanup(func() { execute(t, "", "docker", "image", "rm", image[0]) })
		load = append(load, image[0])
	}
	execute(t, "", filepath.Join(l.Scripts, "load.sh"), load...)
	return filepath.Join(root, "deepswe")
}

// needKuberay skips the test without the folder that .ci/kuberay fills.
func needKuberay(t *testing.T, kuberay string) {
	t.Helper()
	if kuberay == "" {
		testkit.Skip(t, "kuberay", "DEEPSWE_TEST_KUBERAY names no folder with an operator; .ci/kuberay makes one")
	}
}

// operate gives the cluster KubeRay's kinds, and runs its operator for the namespace beside the cluster. Both are in
// the folder that .ci/kuberay has filled.
func (c *recipeCluster) operate(t *testing.T, kuberay string) {
	t.Helper()
	kinds := filepath.Join(kuberay, "crds")
	c.Kubectl(t, "", "apply", "--server-side", "-f", kinds)
	t.Cleanup(func() { c.Kubectl(t, "", "delete", "--wait=false", "-f", kinds) })
	c.StartBeside(t, filepath.Join(kuberay, "ray-operator"), "--watch-namespace", c.namespace,
		"--enable-leader-election=false", "--metrics-addr=0", "--health-probe-bind-address=0")
}

// ready checks that KubeRay reports the cluster as ready.
func (c *recipeCluster) ready(t *testing.T) {
	t.Helper()
	if state := c.kubectl(t, "", "get", "raycluster", "skyrl", "-o=jsonpath={.status.state}"); state != "ready" {
		t.Errorf("the RayCluster is %q, want it to be ready", state)
	}
}

// trainWithoutHead deletes the pod of Ray's head, where SkyRL runs, after a step. KubeRay makes another one, which the
// workers join. The driver's pod goes on from the last checkpoint, and each step is trained once.
func (c *recipeCluster) trainWithoutHead(t *testing.T, program string) {
	t.Helper()
	const steps = 6
	c.apply(t, program, fmt.Sprint("steps=", steps), "trainer.template=qwen3", "checkpoint.every=1")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for c.steps() == 0 {
		if env.Sleep(ctx, time.Second) != nil {
			t.Fatal(c.kubectl(t, "", "logs", "job/deepswe-train", "--all-containers"))
		}
	}
	head := []string{"get", "pods", "--selector=ray.io/node-type=head", "-o=jsonpath={.items[*].metadata.name}"}
	first := c.kubectl(t, "", head...)
	c.kubectl(t, "", "delete", "pod", first, "--force", "--grace-period=0")
	t.Logf("%s was deleted after %d steps", first, c.steps())
	c.await(t, "deepswe-train")
	t.Log(c.kubectl(t, "", "logs", "job/deepswe-train"), c.kubectl(t, "", "get", "pods", "-o=wide"))
	if second := c.kubectl(t, "", head...); second == first || second == "" {
		t.Errorf("the head is %q, and was %q", second, first)
	}
	if got := c.steps(); got != steps {
		t.Errorf("%d steps were trained, want %d", got, steps)
	}
}
