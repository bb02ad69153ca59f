package recipe

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"text/template"
	"time"

	"deepswe/rl/train/config"
)

// The forms of a recipe.
const (
	Compose    = "compose"
	Slurm      = "slurm"
	Kubernetes = "kubernetes"
)

// Kinds returns the forms.
func Kinds() []string { return []string{Compose, Slurm, Kubernetes} }

//go:embed *.tmpl
var templates embed.FS

// Recipe is a training run with its servers on GPUs.
type Recipe struct {
	Plan
	// Kind is the form, Name the run's.
	Kind, Name string
	keys       map[string]string
	config     config.Config
}

// New plans a run of the configuration on nodes with the same number of GPUs each.
func New(kind string, c config.Config, nodes, gpus int) (*Recipe, error) {
	keys, err := c.Keys()
	switch {
	case err != nil:
		return nil, err
	case keys["trainer.name"] != "tinker":
		return nil, fmt.Errorf("trainer.name is %s, which needs no servers; want tinker", keys["trainer.name"])
	case c.SFT != nil:
		return nil, errors.New("a run that imitates samples nothing, and needs the trainer alone; to fix: print what " +
			"starts the run that comes after it, whose trainer does both")
	case kind == Compose && nodes > 1:
		return nil, errors.New("compose is for one node; to fix: choose slurm or kubernetes")
	}
	r := &Recipe{Kind: kind, Name: config.Slug(c.Name), keys: keys, config: c}
	r.Plan, err = plan(c, keys, nodes, gpus)
	return r, err
}

// Settings returns what the configuration has to change for the plan, as KEY=VALUE.
func (r *Recipe) Settings() []string {
	set := []string{
		"trainer.base_url=" + r.Trainer(), fmt.Sprintf("rollouts.models=%d", r.Rollouts/r.servers()),
		fmt.Sprintf("rollouts.workers=%d", min(r.config.Rollouts.Workers, r.Rollouts*5/4)),
		fmt.Sprintf("evaluate.workers=%d", r.Validators), fmt.Sprintf("simulate.colocated=%v", r.Colocated),
	}
	if l := r.config.Simulate; l == nil || l.Update == 0 {
		set = append(set, fmt.Sprintf("simulate.update=%s", r.Update.Round(time.Second)),
			fmt.Sprintf("simulate.forward=%g", r.Forward))
	}
	for key, value := range r.keys {
		if strings.HasPrefix(key, "environment.") && value != "" &&
			(strings.HasSuffix(key, ".path") || strings.HasSuffix(key, ".exclude_repos_of")) {
			set = append(set, key+"=/data/"+path.Base(value))
		}
	}
	if kind := map[string]string{Compose: "docker", Kubernetes: "kubernetes"}[r.Kind]; kind != "" &&
		r.keys["environment.sandbox.env"] != "" {
		set = append(set, "environment.sandbox.env="+kind)
	}
	if r.Rank > 0 {
		set = append(set, "trainer.lora_sync_path="+loraSync)
	}
	adapters := `""`
	if r.Replicas > 0 {
		adapters = "/shared/adapters"
	}
	return append(set, "trainer.samplers=["+strings.Join(r.Samplers(), ", ")+"]", `trainer.samplers_file=""`,
		"trainer.adapters="+adapters)
}

// Trainer returns the address of the trainer.
func (r *Recipe) Trainer() string {
	if r.Kind == Slurm {
		return "http://127.0.0.1:8000"
	}
	return "http://skyrl:8000"
}

// Samplers returns the addresses of the vLLM servers. A Slurm script, which learns only then on which nodes it runs,
// replaces them.
func (r *Recipe) Samplers() []string {
	var urls []string
	for i := range r.Replicas {
		host, port := fmt.Sprintf("vllm-%d", i), 8000
		if r.Kind == Kubernetes {
			host, port = fmt.Sprintf("vllm-%d.vllm", i/r.PerNode), 8000+i%r.PerNode
		}
		urls = append(urls, fmt.Sprintf("http://%s:%d/v1", host, port))
	}
	return urls
}

// Pods returns the number of vLLM's pods on Kubernetes, if there are Replicas. Each has the PerNode servers of a
// node.
func (r *Recipe) Pods() int { return r.Replicas / r.PerNode }

// Grace returns the seconds that a stopped run is given to end: what is under way has the time of rollouts.drain, a
// checkpoint as long again, and the rest a minute.
func (r *Recipe) Grace() int {
	return int((2*time.Duration(r.config.Rollouts.Drain) + time.Minute).Seconds())
}

// joined is a program in Python that succeeds once as many nodes as SkyRL needs have joined Ray, and says how many
// have. `ray list nodes` would need Ray's dashboard, without which SkyRL installs it.
const joined = `import ray; ray.init(logging_level="ERROR"); n = sum(n["Alive"] for n in ray.nodes()); ` +
	`print(n, "of %[1]d nodes have joined Ray", flush=True); exit(n < %[1]d)`

// Write writes the recipe for the configuration with all settings.
func (r *Recipe) Write(w io.Writer, c config.Config) error {
	text, err := c.YAML()
	if err != nil {
		return err
	}
	backend, err := json.Marshal(r.backend())
	if err != nil {
		return err
	}
	functions := template.FuncMap{
		"board":   func() string { return Board(r.Name) },
		"joined":  func() string { return fmt.Sprintf(joined, r.RayNodes) },
		"config":  func() string { return strings.TrimSpace(string(text)) },
		"backend": func() string { return string(backend) },
		"indent": func(n int, text string) string {
			return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", n))
		},
		// Compose replaces $NAME, and $$ by $.
		"dollars": func(text string) string { return strings.ReplaceAll(text, "$", "$$") },
		"count": func(from, n int) []int {
			numbers := make([]int, n)
			for i := range numbers {
				numbers[i] = from + i
			}
			return numbers
		},
		"times": func(a, b int) int { return a * b },
		"plus":  func(a, b int) int { return a + b },
	}
	t, err := template.New(r.Kind+".tmpl").Funcs(functions).ParseFS(templates, r.Kind+".tmpl")
	if err != nil {
		return err
	}
	return t.Execute(w, r)
}

// loraSync is the directory to which SkyRL writes adapters, and from which deepswe copies them. The script for Slurm
// replaces the leading /shared.
const loraSync = "/shared/lora"

// backend is SkyRL's configuration.
func (r *Recipe) backend() map[string]any {
	part := ownShare
	if r.Replicas == 0 && !r.Colocated {
		part = share
	}
	backend := map[string]any{
		"trainer.placement.colocate_all":                    r.Replicas > 0 || r.Colocated,
		"trainer.placement.policy_num_nodes":                r.TrainerNodes,
		"trainer.placement.policy_num_gpus_per_node":        r.TrainerGPUs,
		"trainer.policy.sequence_parallel_size":             r.Sequence,
		"trainer.policy.optimizer_config.weight_decay":      r.config.Optimizer.WeightDecay,
		"trainer.policy.optimizer_config.max_grad_norm":     r.config.Optimizer.ClipNorm,
		"trainer.micro_train_batch_size_per_gpu":            1,
		"trainer.micro_forward_batch_size_per_gpu":          1,
		"generator.inference_engine.num_engines":            r.Engines,
		"generator.inference_engine.tensor_parallel_size":   r.Tensor,
		"generator.inference_engine.gpu_memory_utilization": part,
		"generator.inference_engine.engine_init_kwargs":     map[string]any{"max_model_len": r.Length},
	}
	if r.Rank > 0 {
		backend["trainer.policy.model.lora.lora_sync_path"] = loraSync
	}
	return backend
}
