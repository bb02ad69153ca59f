package foreign

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepswe/env"
)

// Recipe says how an agent is installed and started. In Install, Files, Env and Run, a name in braces stands for a
// value: {agent} is the folder where it is installed, {version} its version, {home} a fresh home directory, {url} the
// endpoint without a path, {key} the key that it accepts, {model} the name that it gives the model, {context} its
// context in tokens, {prompt} the task, and {prompt_file} a file that holds it. In Run, the values are quoted for a
// shell.
type Recipe struct {
	Name    string `yaml:"name"`
	Version string `yaml:"version"`
	// Licence says whose terms the user accepts, and where they are.
	Licence string `yaml:"licence"`
	// Install are the command lines that install it into {agent}; none if it is there already.
	Install []string `yaml:"install"`
	// Files are written before it starts, by their paths.
	Files map[string]string `yaml:"files"`
	// Env are its variables, as "KEY=value".
	Env []string `yaml:"env"`
	// Run is the command line that starts it.
	Run string `yaml:"run"`
	// SubAgents are the names of the tools with which it starts agents of its own.
	SubAgents []string `yaml:"sub_agents"`
}

//go:embed recipes/*.yaml
var recipes embed.FS

// Names returns the names of the agents that recipes are known for.
func Names() []string {
	files, _ := fs.Glob(recipes, "recipes/*.yaml") // the pattern is valid
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	return names
}

// Find returns the recipe of a known agent, or that of a command line, which has a space in it or names {prompt}. The
// set-up, if not empty, installs what the command line starts, into {agent}.
func Find(agent, setUp string) (Recipe, error) {
	if slices.Contains(Names(), agent) {
		if setUp != "" {
			return Recipe{}, fmt.Errorf("%s has a set-up of its own: leave out --agent-setup", agent)
		}
		data, err := recipes.ReadFile("recipes/" + agent + ".yaml")
		if err != nil {
			return Recipe{}, err
		}
		return parse(data)
	}
	if !strings.ContainsAny(agent, " {/") {
		return Recipe{}, fmt.Errorf("no agent %q: choose deepswe, %s, or give a command line with {prompt} or "+
			"{prompt_file}", agent, strings.Join(Names(), ", "))
	}
	r := Recipe{
		Name: "custom", Version: "1", Run: ownPath + agent,
		Env: []string{
			"OPENAI_BASE_URL={url}/v1", "OPENAI_API_BASE={url}/v1", "OPENAI_API_KEY={key}", "ANTHROPIC_BASE_URL={url}",
			"ANTHROPIC_API_KEY={key}", "ANTHROPIC_MODEL={model}", "DEEPSWE_MODEL={model}",
			"DEEPSWE_PROMPT_FILE={prompt_file}",
		},
	}
	if setUp != "" {
		r.Install = []string{
			"python3 -m venv {agent} || true", // for pip
			"export NPM_CONFIG_PREFIX={agent}; " + ownPath + setUp,
		}
	}
	return r, nil
}

// ownPath makes a shell find what is installed in {agent}.
const ownPath = "export PATH={agent}/bin:$PATH; "

func parse(data []byte) (Recipe, error) {
	var r Recipe
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("recipe: %w", err)
	}
	if r.Name == "" || r.Version == "" || r.Run == "" {
		return r, errors.New("recipe: it requires a name, a version and run")
	}
	return r, nil
}

// Folder is where sandboxes show what was installed; it is {agent}.
const Folder = "/opt/deepswe/agent"

// values are what the names in braces stand for.
type values map[string]string

func (v values) fill(text string) string {
	var pairs []string
	for name, value := range v {
		pairs = append(pairs, "{"+name+"}", value)
	}
	return strings.NewReplacer(pairs...).Replace(text) // in one go: a value may have braces
}

// quoted returns the values as words of a shell.
func (v values) quoted() values {
	q := values{}
	for name, value := range v {
		q[name] = env.ShellQuote(value)
	}
	return q
}
