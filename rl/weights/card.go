package weights

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepswe/env/disk"
)

// cardName is the page of a model.
const cardName = "README.md"

// Card is what a model's page says about where the model comes from. No path, host name or key belongs there.
type Card struct {
	// Base is the base model's name on a hub. If empty, it is taken from the adapter, or from the base's own page.
	Base string
	// Training says how the weights were trained, a sentence or a figure each.
	Training []string
}

// front is the front matter of a page, as the hub reads it.
type front struct {
	Base     string   `yaml:"base_model,omitempty"`
	Relation string   `yaml:"base_model_relation,omitempty"`
	Library  string   `yaml:"library_name"`
	Task     string   `yaml:"pipeline_tag"`
	License  string   `yaml:"license,omitempty"`
	Name     string   `yaml:"license_name,omitempty"`
	Link     string   `yaml:"license_link,omitempty"`
	Tags     []string `yaml:"tags"`
}

// write writes the page of a merged model. The license is the base's.
func (c Card) write(base, out string, a *adapter, r Report) error {
	f := readFront(filepath.Join(base, cardName))
	f.Relation, f.Library = "finetune", "transformers"
	text, err := c.beginPage(f, a.config.Base, "lora")
	if err != nil {
		return err
	}
	fmt.Fprintf(text, "A LoRA adapter of rank %d and alpha %g was merged into its base: %d weights changed, and %d\n"+
		"that the adapter has zeros for stayed as they were. Of the changed weights' numbers, %.3g%% differ from the "+
		"base's\nafter they were rounded to their type.\n",
		a.config.Rank, a.config.Alpha, r.Modules, r.Unchanged, 100*r.Share())
	if r.Untied {
		text.WriteString("\nThe output layer, which the base shares with its embedding, has weights of its own here.\n")
	}
	text.WriteString("\n| file that was merged | SHA-256 |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(r.Digests)) {
		fmt.Fprintf(text, "| %s | %s |\n", name, r.Digests[name])
	}
	return disk.WriteFile(filepath.Join(out, cardName), text.Bytes())
}

// WriteAdapterCard writes the page of an adapter that lies in dir.
func WriteAdapterCard(dir string, c Card) error {
	data, err := os.ReadFile(filepath.Join(dir, adapterConfigFile))
	if err != nil {
		return err
	}
	config, err := parseAdapterConfig(data)
	if err != nil {
		return fmt.Errorf("%s: %w", adapterConfigFile, err)
	}
	text, err := c.beginPage(front{Relation: "adapter", Library: "peft"}, config.Base, "lora")
	if err != nil {
		return err
	}
	fmt.Fprintf(text, "A LoRA adapter of rank %d and alpha %g. vLLM serves it beside its base, and deepswe merge makes\n"+
		"one model of the two.\n", config.Rank, config.Alpha)
	return disk.WriteFile(filepath.Join(dir, cardName), text.Bytes())
}

// writeWhole writes the page of a model that lies in dir as the trainer's server has handed it out.
func (c Card) writeWhole(dir string) error {
	text, err := c.beginPage(front{Relation: "finetune", Library: "transformers"}, "")
	if err != nil {
		return err
	}
	text.WriteString("All weights of the model, as its trainer has saved them.\n")
	return disk.WriteFile(filepath.Join(dir, cardName), text.Bytes())
}

// beginPage returns a page's front matter, and how the weights were trained.
func (c Card) beginPage(f front, base string, tags ...string) (*bytes.Buffer, error) {
	f.Base, f.Task = cmp.Or(c.Base, base), "text-generation"
	if filepath.IsAbs(f.Base) || strings.HasPrefix(f.Base, ".") {
		f.Base = "" // a path of the machine that trained
	}
	f.Tags = append([]string{"deepswe", "reinforcement-learning"}, tags...)
	if f.Base == "" {
		f.Relation = ""
	}
	matter, err := yaml.Marshal(f)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "---\n%s---\n\n# %s, trained with deepswe\n\n", matter, cmp.Or(f.Base, "A model"))
	for _, line := range c.Training {
		fmt.Fprintf(&text, "- %s\n", line)
	}
	if len(c.Training) > 0 {
		text.WriteByte('\n')
	}
	return &text, nil
}

// readFront reads what a base's page says about its license. A page without it, or no page, says nothing.
func readFront(path string) (f front) {
	data, err := os.ReadFile(path)
	if err != nil {
		return f
	}
	text, ok := bytes.CutPrefix(data, []byte("---\n"))
	matter, _, found := bytes.Cut(text, []byte("\n---"))
	if !ok || !found || yaml.Unmarshal(matter, &f) != nil {
		return front{}
	}
	return front{License: f.License, Name: f.Name, Link: f.Link}
}
