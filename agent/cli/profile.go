package cli

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepswe/agent"
	"deepswe/agent/llm"
)

//go:embed profiles.yaml
var bundledProfiles []byte

// Profile is what is known of a model by its name.
type Profile struct {
	// Models are patterns of names, in lower case and without what precedes the last slash; a * matches anything.
	Models []string `yaml:"models,omitempty"`
	// Format is xml or tools; empty leaves it to the model's name.
	Format            string   `yaml:"format,omitempty"`
	Temperature       *float64 `yaml:"temperature,omitempty"`
	TopP              *float64 `yaml:"top_p,omitempty"`
	TopK              *int     `yaml:"top_k,omitempty"`
	RepetitionPenalty *float64 `yaml:"repetition_penalty,omitempty"`
	// Thoughts is "dropped" if thoughts of earlier turns must not be sent back, otherwise "kept" or empty.
	Thoughts string `yaml:"thoughts,omitempty"`
	// Context is the length to assume if the endpoint does not report it.
	Context int `yaml:"context,omitempty"`
	// Parser is the name of vLLM's parser of the model's tool calls.
	Parser string `yaml:"parser,omitempty"`

	// Source is the path of the configuration that it comes from; empty if it is built in.
	Source string `yaml:"-"`
}

const droppedThoughts = "dropped"

// ProfileOf returns the first profile whose pattern the model's name matches; an empty one if there is none.
func (w World) ProfileOf(c Config, model string) Profile {
	for _, p := range c.Profiles {
		if p.matches(model) {
			p.Source = w.ConfigPath()
			return p
		}
	}
	bundled, err := parseConfig(bundledProfiles)
	if err != nil {
		panic(err) // a test reads the file
	}
	for _, p := range bundled.Profiles {
		if p.matches(model) {
			return p
		}
	}
	return Profile{}
}

// parseConfig reads a configuration, and checks the profiles in it.
func parseConfig(data []byte) (Config, error) {
	var c Config
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, plainYAML(err)
	}
	for _, p := range c.Profiles {
		if err := p.check(); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (p Profile) matches(model string) bool {
	name := strings.ToLower(path.Base(model))
	return slices.ContainsFunc(p.Models, func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // check refuses invalid patterns
		return ok
	})
}

func (p Profile) check() error {
	if len(p.Models) == 0 {
		return Usagef("profiles: each needs models, a list of patterns")
	}
	for _, pattern := range p.Models {
		if _, err := path.Match(pattern, ""); err != nil || pattern != strings.ToLower(pattern) {
			return Usagef("profiles: %q is not a pattern of lower-case names", pattern)
		}
	}
	if _, known := agent.FormatNamed(p.Format); p.Format != "" && !known {
		return Usagef("profiles: %s: format: choose xml or tools", p.Models[0])
	}
	if p.Thoughts != "" && p.Thoughts != "kept" && p.Thoughts != droppedThoughts {
		return Usagef("profiles: %s: thoughts: choose kept or dropped", p.Models[0])
	}
	if p.Context < 0 {
		return Usagef("profiles: %s: context must not be negative", p.Models[0])
	}
	return nil
}

// sampling returns the settings that the profile makes.
func (p Profile) sampling() agent.Sampling {
	return agent.Sampling{
		Temperature: p.Temperature, TopP: p.TopP, TopK: p.TopK, RepetitionPenalty: p.RepetitionPenalty,
	}
}

// String describes what the profile sets, in the words of the file.
func (p Profile) String() string {
	p.Models = nil
	text, err := yaml.Marshal(p)
	if err != nil || string(text) == "{}\n" {
		return ""
	}
	return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ", ")
}

// roomEnough refuses a context that is too short for an agent unless a flag asks for it, and warns of a short one. If
// no context is reported, it assumes the profile's, or a cautious one.
func (o *ModelFlags) roomEnough(w World, m LiveModel) error {
	scarce := m.Served.Scarce()
	switch {
	case scarce != "" && m.Context < llm.LeastContext && !o.Given("context"):
		return Usagef("%s\nor go on all the same: --context %d", scarce, m.Context)
	case scarce != "":
		Say(w.Err, "warning: "+scarce)
	case m.Context > 0 || o.Given("context") || o.Context != defaultContext:
	case o.profile.Context > 0:
		o.Context = min(o.Context, o.profile.Context)
	default:
		o.Context = llm.GoodContext
		Say(w.Err, fmt.Sprintf("warning: the endpoint does not report the context of %s, and %d tokens are assumed\n"+
			"to fix: deepswe config set context N, or --context N", m.Name, o.Context))
	}
	return nil
}
