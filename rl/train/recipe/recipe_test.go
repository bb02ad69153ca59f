package recipe_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	strict "sigs.k8s.io/yaml"

	"deepswe/env/testkit"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/recipe"
)

const short = "trainer.max_length=32768 algorithm.max_length=32768 stages=[] optimizer.learning_rate=2e-5 " +
	"trainer.rank=32"

// clusters are the sizes that docs/recipes.md describes.
var clusters = []struct {
	name        string
	nodes, gpus int
	set         string
	rollouts    int // at once, of each server that samples
	validators  int // workers of a validation beside the training
}{
	{"one GPU", 1, 1, "trainer.model=Qwen/Qwen3-8B " + short, 6, 0},
	{"one node", 1, 8, short + " trainer.samplers_file=others", 24, 3},
	{"eight nodes", 8, 8, short, 24, 36},
	{"eight nodes, all weights", 8, 8, "", 144, 0},
}

// printed returns a recipe for deepswe-32b, and its configuration.
func printed(t *testing.T, kind string, nodes, gpus int, set string) (string, config.Config) {
	t.Helper()
	text, c, err := printedFrom("deepswe-32b.yaml", kind, nodes, gpus, strings.Fields(set)...)
	if err != nil {
		t.Fatal(err)
	}
	return text, c
}

// printedFrom is a recipe of a bundled configuration.
func printedFrom(file, kind string, nodes, gpus int, set ...string) (text string, c config.Config, err error) {
	data, err := os.ReadFile("../../../testdata/" + file)
	if err != nil {
		return "", c, err
	}
	if c, err = config.Load(data, builtin.Parts(), set...); err != nil {
		return "", c, err
	}
	r, err := recipe.New(kind, c, nodes, gpus)
	if err != nil {
		return "", c, err
	}
	if c, err = config.Load(data, builtin.Parts(), append(set, r.Settings()...)...); err != nil {
		return "", c, err
	}
	var b bytes.Buffer
	err = r.Write(&b, c)
	return b.String(), c, err
}

// Every member of the manifests exists in the Kubernetes API, and deepswe accepts the driver's configuration.
func TestManifests(t *testing.T) {
	t.Parallel()
	for _, c := range clusters {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text, want := printed(t, recipe.Kubernetes, c.nodes, c.gpus, c.set)
			if want.Rollouts.Models != c.rollouts {
				t.Errorf("%d rollouts are sampled at once, want %d", want.Rollouts.Models, c.rollouts)
			}
			if want.Evaluate.Workers != c.validators {
				t.Errorf("%d workers validate beside the training, want %d", want.Evaluate.Workers, c.validators)
			}
			var kinds []string
			gpus := 0
			for _, document := range strings.Split(text, "\n---\n") {
				o := decode(t, document)
				kinds = append(kinds, fmt.Sprintf("%T", o))
				switch o := o.(type) {
				case *core.ConfigMap:
					if o.Name == "deepswe-board" {
						continue // see TestBoardOfARun
					}
					got, err := config.Load([]byte(o.Data["train.yaml"]), builtin.Parts())
					if err != nil {
						t.Fatal(err)
					}
					if changed, err := got.Changed(must(want.YAML())); err != nil || len(changed) > 0 {
						t.Errorf("%v, and the driver's configuration differs in %q", err, changed)
					}
				case *batch.Job:
					shell(t, o.Spec.Template.Spec.InitContainers[0].Args[0], "sh", "-n")
					shell(t, o.Spec.Template.Spec.Containers[0].Args[0], "sh", "-n")
				case *apps.StatefulSet:
					gpus += int(*o.Spec.Replicas) * gpusOf(o.Spec.Template.Spec)
					vllms(t, o, string(must(want.YAML())))
					if on := gpusOf(o.Spec.Template.Spec); c.nodes > 1 && on != c.gpus {
						t.Errorf("a pod of vLLM has %d GPUs of a node, want all, as the scheduler puts it on any", on)
					}
				case *apps.Deployment:
					gpus += gpusOf(o.Spec.Template.Spec)
				case *rayCluster:
					w := o.Spec.WorkerGroupSpecs[0]
					gpus += gpusOf(o.Spec.HeadGroupSpec.Template.Spec) + w.Replicas*gpusOf(w.Template.Spec)
					shell(t, o.Spec.HeadGroupSpec.Template.Spec.Containers[0].Args[0], "bash", "-n")
					for _, ray := range []core.PodTemplateSpec{o.Spec.HeadGroupSpec.Template, w.Template} {
						if p := ray.Spec.Containers[0]; p.LivenessProbe == nil || p.ReadinessProbe == nil {
							t.Error("KubeRay gives a pod its probes, which need Ray's dashboard")
						}
					}
				}
			}
			if gpus != c.nodes*c.gpus {
				t.Errorf("%d GPUs are asked for, want %d", gpus, c.nodes*c.gpus)
			}
			if ray := slices.Contains(kinds, "*recipe_test.rayCluster"); ray != (c.nodes > 1) {
				t.Errorf("the objects are %q", kinds)
			}
		})
	}
}

// rayCluster is the part of KubeRay's RayCluster that the manifests use.
type rayCluster struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`

	Spec struct {
		HeadGroupSpec struct {
			RayStartParams map[string]string    `json:"rayStartParams"`
			Template       core.PodTemplateSpec `json:"template"`
		} `json:"headGroupSpec"`
		WorkerGroupSpecs []struct {
			GroupName      string               `json:"groupName"`
			Replicas       int                  `json:"replicas"`
			MinReplicas    int                  `json:"minReplicas"`
			MaxReplicas    int                  `json:"maxReplicas"`
			RayStartParams map[string]string    `json:"rayStartParams"`
			Template       core.PodTemplateSpec `json:"template"`
		} `json:"workerGroupSpecs"`
	} `json:"spec"`
}

// decode decodes an object, and refuses members that its kind does not have.
func decode(t *testing.T, text string) any {
	t.Helper()
	var kind meta.TypeMeta
	if err := strict.Unmarshal([]byte(text), &kind); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	o, ok := map[string]any{
		"v1/ServiceAccount": &core.ServiceAccount{}, "v1/ConfigMap": &core.ConfigMap{}, "v1/Service": &core.Service{},
		"v1/PersistentVolumeClaim": &core.PersistentVolumeClaim{}, "batch/v1/Job": &batch.Job{},
		"rbac.authorization.k8s.io/v1/Role":        &rbac.Role{},
		"rbac.authorization.k8s.io/v1/RoleBinding": &rbac.RoleBinding{},
		"apps/v1/Deployment":                       &apps.Deployment{}, "apps/v1/StatefulSet": &apps.StatefulSet{},
		"apps/v1/DaemonSet": &apps.DaemonSet{}, "networking.k8s.io/v1/NetworkPolicy": &network.NetworkPolicy{},
		"ray.io/v1/RayCluster": &rayCluster{},
	}[kind.APIVersion+"/"+kind.Kind]
	if !ok {
		t.Fatalf("%s of %s is not known", kind.Kind, kind.APIVersion)
	}
	if err := strict.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatalf("%s: %v\n%s", kind.Kind, err, text)
	}
	return o
}

func gpusOf(p core.PodSpec) (gpus int) {
	for _, c := range p.Containers {
		n := c.Resources.Limits["nvidia.com/gpu"]
		gpus += int(n.Value())
	}
	return gpus
}

// vllms checks that the servers of a StatefulSet are those that the configuration names.
func vllms(t *testing.T, o *apps.StatefulSet, config string) {
	t.Helper()
	servers := 0
	for pod := range int(*o.Spec.Replicas) {
		for _, c := range o.Spec.Template.Spec.Containers {
			servers++
			port := c.Ports[0].ContainerPort
			url := fmt.Sprintf("http://%s-%d.%s:%d/v1\n", o.Name, pod, o.Spec.ServiceName, port)
			if !strings.Contains(config, url) {
				t.Errorf("the configuration does not name %s", url)
			}
			at := slices.Index(c.Args, "--port") + 1
			if loras := slices.Index(c.Args, "--max-loras") + 1; c.Args[loras] != "3" { // one of them is validated
				t.Errorf("%s samples %s adapters at once, want 3", c.Name, c.Args[loras])
			}
			if probe := c.ReadinessProbe.HTTPGet.Port.IntVal; c.Args[at] != fmt.Sprint(port) || probe != port {
				t.Errorf("%s listens on %s, is probed on %d, and has port %d", c.Name, c.Args[at], probe, port)
			}
		}
	}
	if named := strings.Count(config, ".vllm:"); named != servers {
		t.Errorf("the configuration names %d servers, want %d", named, servers)
	}
}

// The Compose file is valid YAML, and the services, volumes and configurations that it names exist.
func TestCompose(t *testing.T) {
	t.Parallel()
	for _, c := range clusters[:2] {
		text, want := printed(t, recipe.Compose, c.nodes, c.gpus, c.set)
		var file struct {
			Name     string
			Services map[string]struct {
				DependsOn map[string]struct{ Condition string } `yaml:"depends_on"`
				Command   []string
				Configs   []struct{ Source, Target string }
				Deploy    struct {
					Resources struct {
						Reservations struct {
							Devices []struct {
								Driver       string
								Capabilities []string
								IDs          []string `yaml:"device_ids"`
							}
						}
					}
				}
				Rest map[string]any `yaml:",inline"`
			}
			Volumes map[string]any
			Configs map[string]struct{ Content string }
		}
		d := yaml.NewDecoder(strings.NewReader(text))
		d.KnownFields(true)
		if err := errors.Join(d.Decode(&file)); err != nil {
			t.Fatal(err)
		}
		var devices []string
		for name, s := range file.Services {
			for on, how := range s.DependsOn {
				if other, ok := file.Services[on]; !ok || other.Rest["healthcheck"] == nil || how.Condition != "service_healthy" {
					t.Errorf("%s depends on %s, which is not there or has no health", name, on)
				}
			}
			for _, use := range s.Configs {
				if _, ok := file.Configs[use.Source]; !ok {
					t.Errorf("%s uses %s", name, use.Source)
				}
			}
			for _, device := range s.Deploy.Resources.Reservations.Devices {
				devices = append(devices, device.IDs...)
			}
			if slices.Contains([]string{"deepswe", "prune"}, name) {
				shell(t, strings.ReplaceAll(s.Command[2], "$$", "$"), "sh", "-n")
			}
		}
		if slices.Sort(devices); len(slices.Compact(devices)) != c.gpus {
			t.Errorf("%s: the GPUs are %q", c.name, devices)
		}
		got, err := config.Load([]byte(strings.ReplaceAll(file.Configs["train"].Content, "$$", "$")), builtin.Parts())
		if err != nil {
			t.Fatal(err)
		}
		if changed, err := got.Changed(must(want.YAML())); err != nil || len(changed) > 0 {
			t.Errorf("%v, and the driver's configuration differs in %q", err, changed)
		}
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}

// shell runs a shell on a script.
func shell(t *testing.T, script, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, script)
	}
}

// standIns are the commands that a job calls. srun runs its command here, servers run until they are ended and answer
// only once they are started, and deepswe keeps its configuration. A second job resumes the run of the first.
const standIns = `
touch "$calls"
logged() { grep -c -- "$1" "$calls" || true; }
joined=$(logged 'ray start')
scontrol() { seq -f node%g 0 $((SLURM_NNODES - 1)); }
srun() { echo "srun $*" >> "$calls"; while [ "${1#--}" != "$1" ]; do shift; done; "$@"; }
initdb() { mkdir -p "$2" && touch "$2/PG_VERSION"; }
postgres() { exec sleep 60; }
psql() { :; }
ray() { exec sleep 60; }
python() { if [ "$1" = -c ]; then [[ "$2" == *"n < $(($(logged 'ray start') - joined)))" ]]; else exec sleep 60; fi; }
vllm() { exec sleep 60; }
curl() {
  local server=skyrl.tinker.api path=/healthz
  case "${*: -1}" in */health) server='vllm serve' path=/health ;; esac
  if [ "$(logged "$server")" -le "$(logged "$path\$")" ]; then return 7; fi
  echo "curl ${*: -1}" >> "$calls"
}
sleep() { if [ "$1" = 5 ]; then command sleep 0.1; else command sleep "$1"; fi; }
env() { while [[ "$1" == *=* ]]; do shift; done; "$@"; }
deepswe() { echo "deepswe $*" >> "$calls"; cp "$3" "$SHARED/got.yaml"; mkdir -p "$5"; touch "$5/manifest.json"; }
`

// The Slurm job starts its servers on the right nodes, waits for them, and passes the driver its configuration.
func TestSlurmJob(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		testkit.Skip(t, "bash", err)
	}
	for _, c := range clusters {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text, _ := printed(t, recipe.Slurm, c.nodes, c.gpus, c.set)
			dir := t.TempDir()
			calls := filepath.Join(dir, "calls")
			for _, resumed := range []bool{false, true} {
				cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\n"+standIns+text)
				cmd.Env = append(os.Environ(), "SHARED="+dir, "DATA="+dir+"/tasks", "SLURM_JOB_ID=1",
					"SLURM_JOB_NODELIST=node[0-7]", fmt.Sprintf("SLURM_NNODES=%d", c.nodes), "calls="+calls)
				cmd.WaitDelay = 1
				if out, err := cmd.CombinedOutput(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
					t.Fatalf("%v\n%s", err, out)
				}
				log := string(must(os.ReadFile(calls)))
				if got := strings.Contains(log, "--resume"); got != resumed {
					t.Errorf("resumed: %v\n%s", got, log)
				}
			}
			log := string(must(os.ReadFile(calls)))
			samplers := strings.Count(log, "/health\n") / 2
			if strings.Count(log, "vllm serve") != 2*samplers || (samplers == 0) != (c.gpus == 1 || c.set == "") {
				t.Errorf("%d samplers:\n%s", samplers, log)
			}
			if joined := strings.Count(log, "ray start"); c.nodes > 1 && joined != 2*2 && joined != 2*8 {
				t.Errorf("%d nodes joined:\n%s", joined, log)
			}
			got, err := config.Load(must(os.ReadFile(filepath.Join(dir, "got.yaml"))), builtin.Parts())
			if err != nil {
				t.Fatal(err)
			}
			if text := string(must(got.YAML())); !strings.Contains(text, dir+"/tasks/R2E-Gym-Subset.parquet") {
				t.Errorf("the tasks are elsewhere:\n%s", text)
			}
		})
	}
}

// A recipe for which the cluster has no room is refused, with what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config, kind, set string
		nodes, gpus       int
		want              string
	}{
		{"deepswe-32b", recipe.Compose, "seed=1", 2, 8, "compose is for one node"},
		{"deepswe-32b", recipe.Slurm, "seed=1", 1, 8, "takes 512 GB, and 4 GPUs have 160 GB"},
		{"deepswe-32b", recipe.Slurm, "trainer.model=mine", 1, 8, "does not tell its size"},
		{"sft", recipe.Slurm, "sft.rows=rows.jsonl", 1, 8, "print what starts the run that comes after it"},
	} {
		data := must(os.ReadFile("../../../testdata/" + c.config + ".yaml"))
		cfg, err := config.Load(data, builtin.Parts(), c.set)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = recipe.New(c.kind, cfg, c.nodes, c.gpus); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
