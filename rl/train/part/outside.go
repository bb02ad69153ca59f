package part

import (
	"context"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/llm"
	"deepswe/env"
)

// Outside opens the sandboxes and endpoints that a configuration names.
type Outside interface {
	// Sandbox opens a provider for tasks, one of which has the given image; it is empty if none has one.
	Sandbox(ctx context.Context, s Sandbox, image string) (env.Provider, error)
	// Agent installs an agent unless it is installed, and returns what plays its rollouts; nil for deepswe's own.
	Agent(ctx context.Context, name, setUp string) (attempt.Player, error)
	// Model opens an endpoint's model, or a recorded one. Empty settings are taken from the user's configuration.
	Model(ctx context.Context, e Endpoint) (Served, error)
	// Getenv returns an environment variable. API keys are read from there only.
	Getenv(name string) string
}

// Sandbox says where the rollouts of an environment run, like the flags of eval.
type Sandbox struct {
	Env string `yaml:"env"`
	// Image is the container image for tasks that do not name one.
	Image string `yaml:"image"`
	// Hosts lists Docker daemons.
	Hosts          []string `yaml:"hosts"`
	KubeContexts   []string `yaml:"kube_contexts"`
	KubeNamespaces []string `yaml:"kube_namespaces"`
	RegistryMirror string   `yaml:"registry_mirror"`
	ImageBudget    string   `yaml:"image_budget"`
	// Warm is the number of sandboxes that are kept ready on each daemon.
	Warm int `yaml:"warm"`
	// Network gives the agent's sandboxes a network.
	Network bool `yaml:"network"`
}

// Endpoint selects a model of an endpoint, like the flags of eval.
type Endpoint struct {
	BaseURL string `yaml:"base_url"`
	Model   string `yaml:"model"`
	// Tokens is how prompts are made: auto, extend or template.
	Tokens string `yaml:"tokens"`
}

// Served is a model that an endpoint serves.
type Served struct {
	Model agent.Model
	Name  string
	// Context is its context length in tokens, 0 if unknown.
	Context int
	// Identity shows whether the endpoint still serves the same model; zero for a recorded model.
	Identity llm.Identity
}
